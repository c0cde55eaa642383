package client

import (
	"context"
	"errors"
	"strconv"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// blocked is a program that is blocked in opening a file.
type blocked struct {
	*process
	path string
	file uint32 // the handle of what will be the file; 0 when that has been used
}

// StartBlocked starts a program as Start does, and returns when the program is blocked
// in opening path, which does not exist yet. It implements prestart.Blocker, and the
// Process has prestart.Blocked. std.Stdin must be nil. Unsupported without
// Options.Blocks, and if the program ends or goes on instead. After an error the
// sandbox is good for nothing but Destroy.
func (s *Sandbox) StartBlocked(ctx context.Context, c sandbar.Cmd, path string, std driver.Stdio) (driver.Process, error) {
	if !s.opt.Blocks {
		return nil, sandbar.Errorf(sandbar.Unsupported, "this driver cannot block a program in opening its file")
	}
	if std.Stdin != nil {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "stdin", Message: "a blocked program has no input"}
	}
	f := files{s}
	r, err := f.do(ctx, "hold", &wire.FSRequest{Op: wire.FSHold, Path: path, Mode: defaultFileMode}, f.forget)
	if err != nil {
		return nil, err
	}
	file, _, err := wire.DecodeHandle(r.Data)
	if err != nil || file == 0 {
		return nil, s.violated("hold " + sandbar.Quote(path, 200))
	}
	p, err := s.start(ctx, c, std)
	if err != nil {
		return nil, err
	}
	h := &blocked{process: p, path: path, file: file}
	if err := h.request(ctx, &wire.FSRequest{Op: wire.FSHeld}); err != nil {
		_ = p.KillTree() // its failure is the end of the sandbox
		if sandbar.CodeOf(err) == sandbar.Gone && !s.gone() || errors.Is(err, syscall.ETIMEDOUT) {
			err = sandbar.Errorf(sandbar.Unsupported, "%s does not wait for its file: %w", sandbar.Quote(c.Args[0], 100), err)
		}
		return nil, err
	}
	return h, nil
}

// gone reports whether the sandbox has ended.
func (s *Sandbox) gone() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// Release unblocks the program, once; its result's Duration begins here. If code is not
// nil the file appears with it, with mode 0644; if it is nil the caller has written the
// file. After an error the program has not gone on, and the sandbox is good for nothing
// but Destroy. Gone: the program has ended.
func (h *blocked) Release(ctx context.Context, code *string) error {
	r := &wire.FSRequest{Op: wire.FSRelease}
	if code != nil {
		if len(*code) > sandbar.MaxPut {
			return &sandbar.Error{Code: sandbar.Invalid, Field: "code", Message: "release: " + strconv.Itoa(len(*code)) +
				" bytes at once; at most " + strconv.Itoa(sandbar.MaxPut) + " are possible", Fix: "write the file, and give no code"}
		}
		r.Handle, r.Bytes, h.file = h.file, []byte(*code), 0
	} else if err := h.forsake(ctx); err != nil {
		return err
	}
	h.begin()
	return h.request(ctx, r)
}

// begin has the program's time begin now, unless it has ended.
func (h *blocked) begin() {
	h.box.mu.Lock()
	defer h.box.mu.Unlock()
	if h.box.running[h.id] == h.process {
		h.started = time.Now()
	}
}

// forsake removes the file and the pipe that were made for the program.
func (h *blocked) forsake(ctx context.Context) error {
	if h.file == 0 {
		return nil
	}
	r := &wire.FSRequest{Op: wire.FSAbort, Path: h.path, Handle: h.file}
	h.file = 0
	_, err := files{h.box}.do(ctx, "abort", r, nil)
	return err
}

// Abandon ends a program that was not released, and removes the pipe that blocks it; not
// a file that the caller has written at its path.
func (h *blocked) Abandon(ctx context.Context) error {
	if err := h.KillTree(); err != nil {
		return err
	}
	<-h.done
	return h.forsake(ctx)
}

// request asks something about the program. Gone: it has ended.
func (h *blocked) request(ctx context.Context, r *wire.FSRequest) error {
	r.Path, r.Size = h.path, h.id
	_, err := files{h.box}.do(ctx, "hold", r, nil)
	if errors.Is(err, syscall.ESRCH) {
		return sandbar.Errorf(sandbar.Gone, "the program that waited has ended")
	}
	return err
}
