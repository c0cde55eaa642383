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

// rehearsalTime is how long a rehearsal has, the copy not counted. It imports what
// the template has imported already.
const profileTime = 10 * time.Second

// rehearse has a copy run a program of ours and tells the template which pages of
// memory that wrote, so that copies have them before there is a program. A rehearsal
// that fails, or goes on for too long, is one that tells nothing. An error is that of
// a template that cannot be copied.
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
		return sandbar.Errorf(contextCode(ctx), "preparing a template: %w", ctx.Err())
	}
	hot := python.WorkingSet(imports, t.spec.Limits.Memory, output)
	if err != nil || hot == nil {
		t.d.Log.Debug("the rehearsal of a template told nothing", "error", err)
		return nil
	}
	if _, err := t.control.Write(hot); err != nil {
		return sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	return nil
}

// perform runs the rehearsal and returns what it printed.
func (f *fork) profile(ctx context.Context, code string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, profileTime)
	defer cancel()
	out := report{most: python.MaxProfile}
	p, err := f.Eval(ctx, driver.Evaluation{Path: path.Base(f.t.file), Code: code}, driver.Stdio{Stdout: &out})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(int(syscall.SIGKILL)) }) // an error is that of one that has ended
	defer stop()
	_, err = p.Wait()
	return out.Bytes(), err
}

// report keeps the beginning of what is printed, and takes the rest.
type report struct {
	bytes.Buffer
	most int
}

func (r *report) Write(b []byte) (int, error) {
	r.Buffer.Write(b[:min(len(b), r.most-r.Len())])
	return len(b), nil
}
