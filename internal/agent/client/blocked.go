package client

import (
	"context"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// blocked is a program that blocks where it opens a file.
type blocked struct {
	*process
	path string
	file uint32 // the handle of the pending file
}

// StartBlocked starts a program as Start does, which blocks where it opens path until
// Release. path must not exist, and std.Stdin must be nil. It implements
// prestart.Blocker, and the Process has prestart.Blocked. Unsupported without
// Options.Blocks. After an error the sandbox is good for nothing but Destroy.
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

// Release writes code to the file, with mode 0644, and unblocks the program, once; its
// result's Duration begins here. After an error the program has not gone on, and the
// sandbox is good for nothing but Destroy. Gone: the program has ended.
func (h *blocked) Release(ctx context.Context, code string) error {
	for len(code) > sandbar.MaxPut {
		r := &wire.FSRequest{Op: wire.FSWrite, Path: h.path, Handle: h.file, Bytes: []byte(code[:sandbar.MaxPut])}
		if _, err := (files{h.box}).do(ctx, "write", r, nil); err != nil {
			return err
		}
		code = code[sandbar.MaxPut:]
	}
	m := wire.Release{Program: h.id, Handle: h.file, Bytes: []byte(code)}
	h.begin()
	r, err := h.box.request(ctx, wire.TypeRelease, m.Append(nil), nil, &call{})
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

// begin has the program's time begin now, unless it has ended.
func (h *blocked) begin() {
	h.box.mu.Lock()
	defer h.box.mu.Unlock()
	if h.box.running[h.id] == h.process {
		h.started = time.Now()
	}
}

// Abandon ends a program that was not released, and removes the pipe and the pending file
// beside it.
func (h *blocked) Abandon(ctx context.Context) error {
	if err := h.KillTree(); err != nil {
		return err
	}
	<-h.done
	_, err := files{h.box}.do(ctx, "abort", &wire.FSRequest{Op: wire.FSAbort, Path: h.path, Handle: h.file}, nil)
	return err
}
