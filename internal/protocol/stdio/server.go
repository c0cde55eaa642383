package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Options are the server's parameters.
type Options struct {
	// Memory is the sandbox's memory limit in bytes. Default: the engine's.
	Memory int64
	// Disk is the limit of the sandbox's files in bytes. Default: the engine's.
	Disk int64
	// MaxLine bounds the line of a request, in bytes. Default: 48 MiB.
	MaxLine int
	// MaxFile bounds a file in a read_file request, in bytes. Default: 32 MiB.
	MaxFile int64
	// AllowNoSandbox makes New succeed even if no sandbox can be created. Requests are then answered
	// with the reason, and status is not ready.
	AllowNoSandbox bool
}

// The defaults of Options.
const (
	defaultMaxLine = 48 << 20
	defaultMaxFile = 32 << 20
)

// Server answers requests with one sandbox.
type Server struct {
	e     *engine.Engine
	opt   Options
	began time.Time
	box   *engine.Sandbox
}

// New creates a server and its sandbox, which Close removes. It returns the error of creating the
// sandbox, unless Options.AllowNoSandbox is set.
func New(ctx context.Context, e *engine.Engine, opt Options) (*Server, error) {
	if opt.MaxLine <= 0 {
		opt.MaxLine = defaultMaxLine
	}
	if opt.MaxFile <= 0 {
		opt.MaxFile = defaultMaxFile
	}
	s := &Server{e: e, opt: opt, began: time.Now()}
	if _, err := s.sandbox(ctx); err != nil && !opt.AllowNoSandbox {
		return nil, err
	}
	return s, nil
}

// Close removes the sandbox.
func (s *Server) Close(ctx context.Context) error {
	if s.box == nil {
		return nil
	}
	err := s.e.Stop(ctx, s.box.ID())
	if sandbar.CodeOf(err) == sandbar.NotFound {
		err = nil // it has ended by itself
	}
	if err == nil {
		s.box = nil
	}
	return err
}

// sandbox returns the sandbox, and creates a new one if there is none or it has died.
func (s *Server) sandbox(ctx context.Context) (*engine.Sandbox, error) {
	if s.box != nil {
		if _, err := s.e.Get(context.Background(), s.box.ID()); err == nil {
			return s.box, nil
		}
		if err := s.Close(ctx); err != nil { // no process of the old one may be left
			return nil, err
		}
	}
	box, err := s.e.Create(ctx, sandbar.Spec{IdleTimeout: -1, Limits: sandbar.Limits{Memory: s.opt.Memory, Disk: s.opt.Disk}})
	if err != nil {
		return nil, err
	}
	s.box = box
	return box, nil
}

// Serve answers the requests of in until its end. It returns I/O errors of in and out. The end of
// ctx cancels the current request.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := lineReader{newBufio(in), s.opt.MaxLine}
	for {
		line, err := lines.next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errLong):
			text := fmt.Sprintf("the line is longer than %d bytes", s.opt.MaxLine)
			_, err = out.Write(encode(failed(typeError, nil, text)))
		case err != nil:
			return fmt.Errorf("reading a request: %w", err)
		case len(line) == 0:
			continue
		default:
			_, err = out.Write(encode(s.answer(ctx, line)))
		}
		if err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
	}
}

// answer returns the response to a line.
func (s *Server) answer(ctx context.Context, line []byte) any {
	r, no := decode(line)
	if no != nil {
		return failed(no.kind, no.id, no.text)
	}
	switch r.kind {
	case typeShell:
		return s.shell(ctx, r)
	case typeWrite:
		return s.write(ctx, r)
	case typeRead:
		return s.read(ctx, r)
	case typeReset:
		return s.reset(ctx, r)
	}
	return s.status(ctx, r)
}
