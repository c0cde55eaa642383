package engine_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// onceDriver is a faulty driver that makes sandboxes for single programs, by Create and Start.
type onceDriver struct {
	*faulty.Driver
	refuse error
	calls  atomic.Int32
	last   atomic.Pointer[driver.OneShot]
}

func (d *onceDriver) TakesOneShots(s sandbar.Spec) bool { return s.Network != sandbar.NetworkOutbound }

func (d *onceDriver) RunOnce(ctx context.Context, id sandbar.ID, s sandbar.Spec, o driver.OneShot, std driver.Stdio) (driver.Single, driver.Process, error) {
	d.calls.Add(1)
	d.last.Store(&o)
	if d.refuse != nil {
		return nil, nil, d.refuse
	}
	sb, err := d.Create(ctx, id, s)
	if err != nil {
		return nil, nil, err
	}
	if o.File != "" {
		err = driver.WriteFile(ctx, sb.FS(), o.File, []byte(o.Code))
	}
	var p driver.Process
	if err == nil {
		p, err = sb.Start(ctx, o.Cmd, std)
	}
	if err != nil {
		_ = sb.Destroy(ctx)
		return nil, nil, err
	}
	return sb.(driver.Single), p, nil
}

// Programs of one execution start by RunOnce, unless the driver refuses or a ready sandbox helps.
func TestOneShot(t *testing.T) {
	for _, c := range []struct {
		name   string
		job    sandbar.Job
		refuse error
		calls  int32
		code   sandbar.Code // of the error
		file   string
	}{
		{name: "a command", job: sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"print", "hi"}}}, calls: 1},
		{name: "a shell", job: sandbar.Job{Language: "shell", Code: "print hi"}, calls: 1, file: sandbar.DefaultDir + "/main.sh"},
		{name: "an interpreter, not in a ready sandbox without one", job: sandbar.Job{Language: "python", Code: "print hi"}, calls: 1, file: sandbar.DefaultDir + "/main.py"},
		{name: "cold", job: sandbar.Job{Spec: sandbar.Spec{Cold: true}, Cmd: sandbar.Cmd{Args: []string{"print", "hi"}}}},
		{name: "refused", job: sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"print", "hi"}}}, calls: 1, refuse: sandbar.Errorf(sandbar.Unsupported, "no")},
		{name: "failed", job: sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"print", "hi"}}}, calls: 1, refuse: sandbar.Errorf(sandbar.NotFound, "no"), code: sandbar.NotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &onceDriver{Driver: faulty.New(), refuse: c.refuse}
				r := newRig(t, d.Driver, func(cfg *engine.Config) {
					cfg.Driver = d
					cfg.Templates = []engine.Template{{Language: "shell", Min: 2}, {Min: 1}}
				})
				synctest.Wait()
				res, err := r.Run(t.Context(), c.job, nil)
				if sandbar.CodeOf(err) != c.code || err == nil && res.Outcome != sandbar.Exited {
					t.Errorf("%+v, %v", res, err)
				}
				if n := d.calls.Load(); n != c.calls {
					t.Errorf("%d calls of RunOnce, want %d", n, c.calls)
				}
				if o := d.last.Load(); o != nil && o.File != c.file {
					t.Errorf("the file is %q", o.File)
				}
				if s := r.Templates(); s[0].Ready != 0 {
					t.Errorf("%d ready sandboxes that no request takes", s[0].Ready)
				}
			})
		})
	}
}

// Requests that come faster than interpreters can be started find none ready, and none is started
// for them beyond the first, if the driver makes sandboxes for single programs. After them the pool
// is as large as the demand was.
func TestOneShotsOutrunPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &onceDriver{Driver: faulty.New()}
		d.OnCreate = faulty.Slow(100 * time.Millisecond)
		r := newRig(t, d.Driver, func(cfg *engine.Config) {
			cfg.Driver = d
			cfg.Templates = []engine.Template{{Language: "python", Max: 4}}
			cfg.MaxSandboxes = 1000
		})
		for range 2 {
			(<-run(r.admit(script("print x")), nil)).want(t, sandbar.Exited)
			time.Sleep(time.Minute) // the pool has measured how long one takes, and is empty again
		}
		before := r.Templates()[0]
		var all []<-chan answer
		for range 50 * runtime.NumCPU() {
			all = append(all, run(r.admit(script("print x")), nil))
			time.Sleep(40 * time.Millisecond / time.Duration(runtime.NumCPU()))
		}
		busy := r.Templates()[0]
		if made := busy.Forks - before.Forks; made > 4 {
			t.Errorf("%d interpreters were started under load", made)
		}
		for _, c := range all {
			(<-c).want(t, sandbar.Exited)
		}
		time.Sleep(10 * time.Second)
		if after := r.Templates()[0]; after.Ready == 0 || after.Ready != after.Target {
			t.Errorf("after the load: %+v", after)
		}
	})
}
