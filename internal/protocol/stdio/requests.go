package stdio

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// output collects a program's output, which the engine bounds.
type output struct{ stdout, stderr bytes.Buffer }

// Started implements engine.Sink.
func (o *output) Started() {}

// Output implements engine.Sink.
func (o *output) Output(c sandbar.Chunk) error {
	if c.Stream == sandbar.Stderr {
		o.stderr.Write(c.Data)
	} else {
		o.stdout.Write(c.Data)
	}
	return nil
}

// timeoutText is the text of the protocol's own example.
const timeoutText = "Command execution failed: timeout exceeded"

func (s *Server) shell(ctx context.Context, r *request) any {
	box, err := s.sandbox(ctx)
	if err != nil {
		return failed(r.kind, &r.id, err.Error())
	}
	var out output
	cmd := sandbar.Cmd{Args: []string{"sh", "-c", r.command}}
	result, err := box.Exec(ctx, cmd, nil, sandbar.Limits{Timeout: r.limit}, &out)
	if err != nil {
		return failed(r.kind, &r.id, err.Error())
	}
	answer := &shellResponse{Type: r.kind, ID: &r.id,
		Stdout: strings.ToValidUTF8(out.stdout.String(), "\uFFFD"), Stderr: strings.ToValidUTF8(out.stderr.String(), "\uFFFD")}
	code, text := s.verdict(result)
	if result.Outcome == sandbar.Lost {
		_ = s.Close(ctx) // otherwise the next request does
	}
	answer.ExitCode, answer.TimedOut = code, result.Outcome == sandbar.TimedOut
	if text != "" {
		answer.Error = &text
	}
	return answer
}

// verdict returns a command's exit code, or the reason why it has none.
func (s *Server) verdict(r sandbar.Result) (code *int, text string) {
	exit := func(n int) (*int, string) { return &n, "" }
	switch r.Outcome {
	case sandbar.Exited:
		return exit(r.ExitCode)
	case sandbar.Signaled:
		return exit(128 + r.Signal)
	case sandbar.TimedOut:
		return nil, timeoutText
	case sandbar.OutOfMemory:
		return nil, fmt.Sprintf("Command execution failed: out of memory (the limit is %d bytes)", s.memory())
	case sandbar.OutputLimit:
		return nil, fmt.Sprintf("Command execution failed: more than %d bytes of output", r.StdoutBytes+r.StderrBytes)
	case sandbar.Cancelled:
		return nil, "Command execution failed: cancelled"
	}
	return nil, "Command execution failed: the sandbox has died; its files are lost, and the next request gets a new one"
}

// memory returns the sandbox's limit in bytes; 0 for none.
func (s *Server) memory() int64 {
	if s.box == nil {
		return max(s.opt.Memory, 0)
	}
	return max(s.box.Info().Spec.Limits.Memory, 0)
}

// files returns the files of the sandbox.
func (s *Server) files(ctx context.Context) (sandbar.FS, error) {
	box, err := s.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	return box.FS(), nil
}

func (s *Server) write(ctx context.Context, r *request) any {
	files, err := s.files(ctx)
	if err == nil {
		err = writeFile(ctx, files, r)
	}
	if err != nil {
		return failed(r.kind, &r.id, err.Error())
	}
	return &writeResponse{Type: r.kind, ID: &r.id, Success: true}
}

func writeFile(ctx context.Context, files sandbar.FS, r *request) error {
	w, err := files.Create(ctx, r.path, sandbar.CreateOptions{Mode: r.mode, Parents: true})
	if err != nil {
		return err
	}
	if _, err := w.Write(r.content); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

func (s *Server) read(ctx context.Context, r *request) any {
	content, err := s.readFile(ctx, r)
	if err != nil {
		return failed(r.kind, &r.id, err.Error())
	}
	return &readResponse{Type: r.kind, ID: &r.id, Content: content, Success: true}
}

func (s *Server) readFile(ctx context.Context, r *request) (string, error) {
	files, err := s.files(ctx)
	if err != nil {
		return "", err
	}
	f, err := files.Open(ctx, r.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, s.opt.MaxFile+1))
	switch {
	case err != nil:
		return "", err
	case int64(len(b)) > s.opt.MaxFile:
		return "", fmt.Errorf("read %s: the file has more than %d bytes", sandbar.Quote(r.path, 200), s.opt.MaxFile)
	case r.base64:
		return base64.StdEncoding.EncodeToString(b), nil
	case !utf8.Valid(b):
		return "", fmt.Errorf(`read %s: the file is not UTF-8 text; read it with "encoding": "base64"`, sandbar.Quote(r.path, 200))
	}
	return string(b), nil
}

func (s *Server) reset(ctx context.Context, r *request) any {
	if err := s.fresh(ctx); err != nil {
		return failed(r.kind, &r.id, err.Error())
	}
	return &resetResponse{Type: r.kind, ID: &r.id, Success: true}
}

// fresh resets the sandbox, or replaces it with a new one.
func (s *Server) fresh(ctx context.Context) error {
	box, err := s.sandbox(ctx)
	if err != nil {
		return err
	}
	if box.Reset(ctx) == nil {
		return nil
	}
	if err := s.Close(ctx); err != nil {
		return err
	}
	_, err = s.sandbox(ctx)
	return err
}

func (s *Server) status(ctx context.Context, r *request) any {
	answer := &statusResponse{Type: r.kind, ID: &r.id, Uptime: time.Since(s.began).Milliseconds()}
	box, err := s.sandbox(ctx)
	answer.MemoryLimit = s.memory()
	if err != nil {
		text := err.Error()
		answer.Error = &text
		return answer
	}
	answer.Ready = true
	// A driver that cannot tell is no reason for an error; nothing is known then.
	answer.MemoryUsed, _ = box.CurrentMemory(ctx)
	return answer
}

var _ engine.Sink = (*output)(nil)
