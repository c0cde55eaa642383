package native

import (
	"bytes"
	"context"
	"path"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/zygote"
)

// rehearse has a copy run a program of ours and tells the template which pages of
// memory that wrote, so that copies have them before there is a program. A rehearsal
// that fails is one that tells nothing; an error is that of the template.
func (t *template) rehearse(ctx context.Context, imports []string) error {
	output, err := t.perform(ctx, imports)
	if err != nil {
		return err
	}
	hot := zygote.Hot(imports, output)
	if hot == nil {
		t.d.log.Debug("the rehearsal of a template told nothing")
		return nil
	}
	if _, err := t.control.Write(hot); err != nil {
		return sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	return nil
}

// perform runs the rehearsal and returns what it printed.
func (t *template) perform(ctx context.Context, imports []string) (output []byte, err error) {
	f, err := t.fork(ctx, sandbar.NewID(), true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if derr := f.Destroy(context.WithoutCancel(ctx)); err == nil {
			err = derr
		}
	}()
	var out bytes.Buffer
	code := zygote.Rehearsal(imports)
	p, err := f.eval(ctx, driver.Evaluation{Path: path.Base(t.file)}, &code, driver.Stdio{Stdout: &out})
	if err != nil {
		return nil, err
	}
	_, err = p.Wait()
	return out.Bytes(), err
}
