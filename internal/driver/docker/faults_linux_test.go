package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	platform "github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// soon bounds operations that normally take much less, so that a hang fails the test.
const soon = 90 * time.Second

// fragile returns the engine for a test that stops it. After the test it runs again.
func fragile(t *testing.T) *dockerd.Engine {
	t.Helper()
	e := shared.Engine(t)
	t.Cleanup(func() { // after the drivers of the test were closed
		_ = e.Resume() // it goes on if it does
		if _, err := e.Containers(context.Background()); err != nil {
			if err := e.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		}
		noVolumes(t, e)
	})
	return e
}

// eventually waits until cond returns true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// empty waits until an engine has no container.
func empty(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	var names []string
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var err error
		if names, err = e.Containers(context.Background()); err == nil && len(names) == 0 {
			return
		}
	}
	t.Errorf("these containers are left: %v", names)
}

// noVolumes fails if an engine has a volume.
func noVolumes(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	if volumes, err := e.Volumes(context.Background()); err != nil || len(volumes) != 0 {
		t.Errorf("these volumes are left: %v, %v", volumes, err)
	}
}

// started counts the running programs.
type started struct {
	mu sync.Mutex
	n  int
}

func (s *started) Started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
}
func (s *started) Output(sandbar.Chunk) error { return nil }
func (s *started) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// The engine crashes during twenty executions. Each caller gets an error in time, and no execution
// succeeds. After the engine's restart and the driver's Close nothing is left on the engine.
func TestCrashInTheMiddle(t *testing.T) {
	e := fragile(t)
	d, err := New(driver.Host{Options: map[string]string{optionHost: e.Host(), optionImage: dockerd.Image}}, agentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	const executions = 20
	p, err := platform.New(platform.Config{Driver: d, Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	run := &started{}
	type end struct {
		res sandbar.Result
		err error
	}
	ends := make(chan end, executions)
	for range executions {
		go func() {
			res, err := p.Run(context.Background(), sandbar.Job{Language: "shell", Code: "sleep 250",
				Spec: sandbar.Spec{Limits: sandbar.Limits{Timeout: 280 * time.Second, Memory: 64 << 20}}}, run)
			ends <- end{res, err}
		}()
	}
	eventually(t, "all programs run", func() bool {
		select {
		case got := <-ends:
			t.Fatalf("a program ended before anything happened: %+v, %v", got.res, got.err)
		default:
		}
		return run.count() == executions
	})
	if err := e.Crash(); err != nil {
		t.Fatal(err)
	}
	over := time.After(soon)
	for i := range executions {
		select {
		case got := <-ends:
			if got.err == nil && got.res.Outcome != sandbar.Lost {
				t.Errorf("a program whose engine crashed ended as %v, exit code %d", got.res.Outcome, got.res.ExitCode)
			} else if code := sandbar.CodeOf(got.err); got.err != nil && code != sandbar.Unavailable && code != sandbar.Gone {
				t.Errorf("a caller is told %v (code %q)", got.err, code)
			}
		case <-over:
			t.Fatalf("%d of %d callers have no answer", executions-i, executions)
		}
	}
	_, err = d.Create(context.Background(), sandbar.NewID(), spec())
	if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.Unavailable || e.Fix == "" {
		t.Errorf("Create without an engine: %v (code %q)", err, sandbar.CodeOf(err))
	}
	if err := e.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Run(context.Background(), sandbar.Job{Language: "shell", Code: "exit 3"}, platform.Discard); err != nil || r.ExitCode != 3 {
		t.Errorf("a program after the engine came back: %+v, %v", r, err)
	}
	empty(t, e)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	noVolumes(t, e)
}

// The engine crashes during creations. Each caller gets an error, and after the engine's restart no
// container is left.
func TestCrashWhileCreating(t *testing.T) {
	e := fragile(t)
	d := newDriver(t, e.Host())
	box, err := d.Create(t.Context(), sandbar.NewID(), spec()) // the agent is there
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var enough atomic.Bool
	made := 0
	first := make(chan struct{})
	tell := sync.OnceFunc(func() { close(first) })
	for range 6 {
		wg.Go(func() {
			for !enough.Load() {
				box, err := d.Create(context.Background(), sandbar.NewID(), spec())
				tell()
				if err != nil {
					if code := sandbar.CodeOf(err); code != sandbar.Unavailable && code != sandbar.Internal {
						t.Errorf("Create while the engine crashes: %v (code %q)", err, code)
					}
					return
				}
				mu.Lock()
				made++
				mu.Unlock()
				// The engine may crash before Destroy, which is then repeated.
				for box.Destroy(context.Background()) != nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	<-first
	if err := e.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := e.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	enough.Store(true) // for whoever still gets through
	wg.Wait()
	t.Logf("%d sandboxes were made", made)
	empty(t, e)
}

// The engine does not answer. Each call ends with its caller's context. When the engine answers
// again, nothing is left of the abandoned creations.
func TestSlowEngine(t *testing.T) {
	e := fragile(t)
	d := newDriver(t, e.Host())
	sb, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if err != nil {
		t.Fatal(err)
	}
	// One creation has sent its request for a container.
	late := &resources{d: d, id: sandbar.NewID()}
	if late.image, err = d.openImage(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p, err := d.planFor(late.id, spec(), late.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(); err != nil {
		t.Fatal(err)
	}
	var errs [4]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			if i == 0 {
				late.asked, errs[i] = d.engine.create(ctx, p.container)
				late.undo(ctx)
				return
			}
			_, errs[i] = d.Create(ctx, sandbar.NewID(), spec())
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := sb.Destroy(ctx); sandbar.CodeOf(err) != sandbar.Timeout {
		t.Errorf("Destroy on an engine that does not answer: %v (code %q)", err, sandbar.CodeOf(err))
	}
	wg.Wait()
	for _, err := range errs {
		if sandbar.CodeOf(err) != sandbar.Timeout {
			t.Errorf("Create on an engine that does not answer: %v (code %q)", err, sandbar.CodeOf(err))
		}
	}
	if err := e.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	// Close removes containers that the engine creates late.
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if names := traces(e); len(names) != 0 {
		t.Errorf("after the driver was closed there are %v", names)
	}
}

// A container whose creation was requested and never answered is found when the engine creates it
// later.
func TestSweeperFindsWhatComesLate(t *testing.T) {
	e := fragile(t)
	d := newDriver(t, e.Host())
	b := &resources{d: d, id: sandbar.NewID()}
	var err error
	if b.image, err = d.openImage(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p, err := d.planFor(b.id, spec(), b.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.fillVolume(t.Context(), b.image); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	d.sweeper.Expect(answered)
	if _, err := d.engine.create(t.Context(), p.container); err != nil {
		t.Fatal(err)
	}
	if names := traces(e); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
	close(answered)
	empty(t, e)
	eventually(t, "nothing is owed any more", func() bool {
		return !d.sweeper.Owes()
	})
}

// An impossible Spec is refused with a fix and without a request.
func TestSaysWhatIsMissing(t *testing.T) {
	host := engineHost(t)
	d := newDriver(t, host)
	for name, tt := range map[string]struct {
		change func(*sandbar.Spec)
		code   sandbar.Code
		fix    string
	}{
		"an image that the operator has not allowed": {func(s *sandbar.Spec) { s.Image = "alpine" }, sandbar.NotFound, optionHostless},
		"too little memory":                          {func(s *sandbar.Spec) { s.Limits.Memory = 1 << 20 }, sandbar.Unsupported, "more"},
		"a network":                                  {func(s *sandbar.Spec) { s.Network = sandbar.NetworkOutbound }, sandbar.Unsupported, optionNetwork},
		"too few processors":                         {func(s *sandbar.Spec) { s.Limits.CPUs = 0.001 }, sandbar.Unsupported, "more"},
		"no such network":                            {func(s *sandbar.Spec) { s.Network = "host" }, sandbar.Invalid, ""},
		"a malformed variable":                       {func(s *sandbar.Spec) { s.Env = map[string]string{"a=b": ""} }, sandbar.Invalid, ""},
	} {
		s := spec()
		tt.change(&s)
		_, err := d.Create(t.Context(), sandbar.NewID(), s)
		if e := sandbar.AsError(err); sandbar.CodeOf(err) != tt.code || !strings.Contains(e.Fix, tt.fix) {
			t.Errorf("%s: %v (code %q); want %q and a fix with %q", name, err, sandbar.CodeOf(err), tt.code, tt.fix)
		}
	}
	t.Run("the image is not there", func(t *testing.T) {
		d, err := New(driver.Host{Options: map[string]string{optionHost: host, optionImage: "nowhere/nothing:1"}}, agentBinary(t))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if notes := strings.Join(d.Caps().Notes, "\n"); !strings.Contains(notes, "docker pull nowhere/nothing:1") {
			t.Errorf("no note tells an operator: %s", notes)
		}
		_, err = d.Create(t.Context(), sandbar.NewID(), spec())
		if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.NotFound || e.Fix != "docker pull nowhere/nothing:1" {
			t.Errorf("Create: %v (code %q)", err, sandbar.CodeOf(err))
		}
	})
	t.Run("there is no engine", func(t *testing.T) {
		_, err := New(driver.Host{Options: map[string]string{optionHost: "unix://" + t.TempDir() + "/none"}}, agentBinary(t))
		if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(e.Fix, "systemctl start docker") {
			t.Errorf("New: %v (code %q)", err, sandbar.CodeOf(err))
		}
	})
}

// optionHostless is part of the fix for an image that is not allowed.
const optionHostless = "\"host\""

// If the agent's volume is removed from the engine, the driver sends the agent again.
func TestAgentIsSentAgain(t *testing.T) {
	e := fragile(t)
	d := newDriver(t, e.Host())
	life := func() error {
		box, err := d.Create(t.Context(), sandbar.NewID(), spec())
		if err != nil {
			return err
		}
		return box.Destroy(t.Context())
	}
	if err := life(); err != nil {
		t.Fatal(err)
	}
	if err := d.engine.removeVolume(t.Context(), d.volume()); err != nil {
		t.Fatal(err)
	}
	err := life()
	if sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("without the agent: %v (code %q)", err, sandbar.CodeOf(err))
	}
	if err := life(); err != nil {
		t.Errorf("after that: %v", err)
	}
	empty(t, e)
}

func ExampleFactory() {
	f := Factory(nil)
	_, err := f.New(driver.Host{Options: map[string]string{"colour": "blue"}})
	var e *sandbar.Error
	fmt.Println(f.Name, errors.As(err, &e), e.Code, e.Field)
	// Output: docker true invalid colour
}
