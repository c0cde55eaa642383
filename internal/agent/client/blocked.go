package client

import (
	"context"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// blocked is a program that blocks in open(2).
type blocked struct {
	*process
	path string
	file uint32 // handle of the pending file
}

// StartBlocked starts a program that blocks when it opens path, until Release. path must not exist,
// and std.Stdin must be nil. The Process implements prestart.Blocked. Unsupported: Options.Blocks
// is false. After an error the sandbox can only be destroyed.
func (s *Sandbox) StartBlocked(ctx context.Context, c sandbar.Cmd, path string, std driver.Stdio) (driver.Process, error) {
	if !s.opt.Blocks {
		return nil, sandbar.Errorf(sandbar.Unsupported, "this driver cannot block a program in opening its file")
	}
	if std.Stdin != nil {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "stdin", Message: "a blocked program has no input"}
	}
	f := files{s}
	r, err := f.do(ctx, "block", &wire.FSRequest{Op: wire.FSBlock, Path: path, Mode: defaultFileMode}, f.forget)
	if err != nil {
		return nil, err
	}
	file, _, err := wire.DecodeHandle(r.Data)
	if err != nil || file == 0 {
		return nil, s.violated("blocking " + sandbar.Quote(path, 200))
	}
	p, err := s.start(ctx, c, std)
	if err != nil {
		return nil, err
	}
	return &blocked{process: p, path: path, file: file}, nil
}

// Release writes code to the file, with mode 0644, and unblocks the program. The Duration of the
// result starts here. It must be called at most once. After an error the program is still blocked,
// and the sandbox can only be destroyed. Gone: the program has ended.
func (h *blocked) Release(ctx context.Context, code string) error {
	for len(code) > sandbar.MaxPut {
		r := &wire.FSRequest{Op: wire.FSWrite, Path: h.path, Handle: h.file, Bytes: []byte(code[:sandbar.MaxPut])}
		if _, err := (files{h.sandbox}).do(ctx, "write", r, nil); err != nil {
			return err
		}
		code = code[sandbar.MaxPut:]
	}
	m := wire.Release{Program: h.id, Handle: h.file, Bytes: []byte(code)}
	h.begin()
	r, err := h.sandbox.request(ctx, wire.TypeRelease, m.Append(nil), nil, &call{})
	switch {
	case err != nil:
		return err
	case r.Failure == wire.OK:
		return nil
	case errnoOf(r.Errno) == syscall.ESRCH:
		return sandbar.Errorf(sandbar.Gone, "the blocked program has ended")
	}
	return fileError("write", h.path, r.Errno)
}

// begin sets the program's start time to now, unless the program has ended.
func (h *blocked) begin() {
	h.sandbox.mu.Lock()
	defer h.sandbox.mu.Unlock()
	if h.sandbox.running[h.id] == h.process {
		h.started = time.Now()
	}
}

// Abandon kills a program that was not released, and removes the pipe and the pending file.
func (h *blocked) Abandon(ctx context.Context) error {
	if err := h.KillTree(); err != nil {
		return err
	}
	<-h.done
	_, err := files{h.sandbox}.do(ctx, "abort", &wire.FSRequest{Op: wire.FSAbort, Path: h.path, Handle: h.file}, nil)
	return err
}
