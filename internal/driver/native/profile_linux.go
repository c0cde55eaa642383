package native

import (
	"bytes"
	"context"
	"path"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// profileTime bounds a profile run, without making the fork. The run imports modules that the
// template has imported already.
const profileTime = 10 * time.Second

// profile runs python.ProfileProgram in a copy and sends the template the pages that it has used,
// so that later copies map them when they are made. A run that fails or takes too long has no
// result, which is no error. profile fails if the template cannot be forked.
func (t *template) profile(ctx context.Context, imports []string) error {
	f, err := t.fork(ctx, sandbar.NewID(), true)
	if err != nil {
		return err
	}
	output, err := f.profile(ctx, python.ProfileProgram(imports))
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxes.UndoTimeout)
	defer cancel()
	if derr := f.Destroy(clean); derr != nil {
		return derr
	}
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "preparing a template: %w", ctx.Err())
	}
	pages := python.WorkingSet(imports, t.spec.Limits.Memory, output)
	if err != nil || pages == nil {
		t.d.Log.Debug("the profile run of a template had no result", "error", err)
		return nil
	}
	if _, err := t.control.Write(pages); err != nil {
		return sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	return nil
}

// profile runs a program and returns the beginning of its output.
func (f *fork) profile(ctx context.Context, code string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, profileTime)
	defer cancel()
	out := boundedBuffer{limit: python.MaxProfile}
	p, err := f.Eval(ctx, driver.Evaluation{Path: path.Base(f.t.file), Code: code}, driver.Stdio{Stdout: &out})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(int(syscall.SIGKILL)) }) // fails only if it has ended
	defer stop()
	_, err = p.Wait()
	return out.Bytes(), err
}

// boundedBuffer keeps the first limit bytes and discards the rest.
type boundedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.limit-b.Len())])
	return len(p), nil
}
