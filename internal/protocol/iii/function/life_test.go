package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// TestCreateAsksFor tests the Spec that a create passes to the engine.
func TestCreateAsksFor(t *testing.T) {
	change := func(c *settings.Config) {
		c.DefaultMemoryMB, c.DefaultIdleTimeoutSecs = 100, 7
		c.ImageAllowlist = append(c.ImageAllowlist, "app")
		c.CustomImages = map[string]string{"app": "r/app"}
	}
	images := store{here: map[string]Root{"python": {Image: "host", Note: "the host's own"}, "app": {Image: "sha256:abc"}}}
	for _, c := range []struct {
		ask  object
		want sandbar.Spec
		note bool
	}{
		{object{"image": "python"}, sandbar.Spec{Image: "host", IdleTimeout: 7 * time.Second, Limits: sandbar.Limits{CPUs: 1, Memory: 100 << 20}}, true},
		{object{"image": "app", "cpus": 2, "memory_mb": 64, "idle_timeout_secs": 60, "env": object{"A": "b"}, "name": "n"},
			sandbar.Spec{Image: "sha256:abc", IdleTimeout: time.Minute, Env: map[string]string{"A": "b"}, Limits: sandbar.Limits{CPUs: 2, Memory: 64 << 20}}, false},
		{object{"image": "app", "idle_timeout_secs": 0}, sandbar.Spec{Image: "sha256:abc", IdleTimeout: time.Second, Limits: sandbar.Limits{CPUs: 1, Memory: 100 << 20}}, false},
	} {
		r := newRig(t, Options{Images: images}, change)
		got := r.call("create", c.ask)
		if _, note := got["note"]; note != c.note || got["image"] != c.ask["image"] {
			t.Errorf("%v: %v", c.ask, got)
		}
		s := r.driver.Specs()[0]
		s = sandbar.Spec{Image: s.Image, IdleTimeout: s.IdleTimeout, Env: s.Env, Limits: sandbar.Limits{CPUs: s.Limits.CPUs, Memory: s.Limits.Memory}}
		if diff := cmp.Diff(c.want, s); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.ask, diff)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		ask     object
		change  func(*settings.Config)
		images  Images
		prepare func(*faulty.Driver)
		code    Code
		message string
		fix     string
	}{
		{"an unknown image", object{"image": "golang"}, nil, nil, nil, S100,
			"image 'golang' not in catalog; valid images are 'python' and 'node'; the operator can add a custom image (see S100 docs)", "null"},
		{"a near one", object{"image": "pyton", "memory_mb": 64}, nil, nil, nil, S100, "image 'pyton' not in catalog", `{"image":"python","memory_mb":64}`},
		{"an OCI reference", object{"image": "docker.io/library/node:20"}, nil, nil, nil, S100, "image 'docker.io", `{"image":"node"}`},
		{"one that is not allowed", object{"image": "node"}, func(c *settings.Config) { c.ImageAllowlist = []string{"python"} }, nil, nil, S100,
			"image 'node' not in catalog; valid images are 'python'; ", "null"},
		{"none is allowed", object{"image": "python"}, func(c *settings.Config) { c.ImageAllowlist = nil }, nil, nil, S100, "image 'python' not in catalog; no image is allowed", "null"},
		{"no room", object{"image": "x"}, func(c *settings.Config) { c.MaxConcurrentSandboxes = 0 }, nil, nil, S400,
			"resource limit exceeded: max_concurrent_sandboxes (0) reached", "null"},
		{"cpus over the cap, first", object{"image": "python", "cpus": 9, "memory_mb": 9999}, caps(2, 100), nil, nil, S400,
			"resource limit exceeded: cpus=9 exceeds per-image cap 2", `{"cpus":2,"image":"python","memory_mb":9999}`},
		{"memory over the cap", object{"image": "python", "memory_mb": 101}, caps(2, 100), nil, nil, S400,
			"resource limit exceeded: memory_mb=101 exceeds per-image cap 100", `{"image":"python","memory_mb":100}`},
		{"a default over the cap", object{"image": "python"}, caps(2, 100), nil, nil, S400, "resource limit exceeded: memory_mb=512 exceeds", `{"image":"python","memory_mb":100}`},
		{"a cap of nothing", object{"image": "python"}, caps(0, 100), nil, nil, S400, "resource limit exceeded: cpus=1 exceeds per-image cap 0", "null"},
		{"no processor", object{"image": "python", "cpus": 0}, nil, nil, nil, S001, "invalid request: cpus must be at least 1", `{"image":"python"}`},
		{"over the engine's limits", object{"image": "python", "memory_mb": 4294967295}, nil, nil, nil, S400, "resource limit exceeded: limits.memory: ", "null"},
		{"not here", object{"image": "python"}, func(c *settings.Config) { c.AutoInstall = false }, store{}, nil, S101,
			"rootfs missing on disk for image 'python'. Run: sandbar images pull docker.io/iiidev/python:latest (see S101 docs)", "null"},
		{"not to be had", object{"image": "python"}, nil, store{}, nil, S102, "auto-install failed for image 'python': the registry did not answer", "null"},
		{"caps before the pull", object{"image": "python", "cpus": 9}, caps(2, 999), store{}, nil, S400, "", `{"cpus":2,"image":"python"}`},
		{"the pull before names", object{"image": "python", "env": object{"9": "x"}}, nil, store{}, nil, S102, "", "null"},
		{"names", object{"image": "python", "env": object{"9bad": "x", "a b": "y", "OK": "z"}}, nil, nil, nil, S001,
			`invalid request: env contains invalid variable name(s): ["9bad","a b"]. Names must match`, "null"},
		{"a network", object{"image": "python", "network": true}, nil, nil, nil, S300, "VM boot failed: network: true", `{"image":"python","network":false}`},
		{"the driver fails", object{"image": "python"}, nil, nil, func(d *faulty.Driver) {
			d.OnCreate = faulty.FailFirst(-1, sandbar.Errorf(sandbar.Internal, "no namespaces"))
		}, S300, "VM boot failed: no namespaces", "null"},
		{"the image is gone", object{"image": "python"}, nil, nil, func(d *faulty.Driver) {
			d.OnCreate = faulty.FailFirst(-1, sandbar.Errorf(sandbar.NotFound, "no such image"))
		}, S101, "no such image", "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var prepare []func(*faulty.Driver)
			if c.prepare != nil {
				prepare = append(prepare, c.prepare)
			}
			r := newRig(t, Options{Images: c.images}, c.change, prepare...)
			e := r.failed("create", c.ask, c.code)
			fix, _ := json.Marshal(e.fix)
			if !strings.HasPrefix(e.message, c.message) || string(fix) != c.fix {
				t.Errorf("%q, fix %s", e.message, fix)
			}
			if len(r.sandboxes) != 0 || r.making != 0 {
				t.Errorf("%d sandboxes, %d places are taken", len(r.sandboxes), r.making)
			}
		})
	}
}

func caps(cpus, memory uint32) func(*settings.Config) {
	return func(c *settings.Config) {
		c.PerImageCaps = map[string]settings.Caps{"python": {MaxCPUs: cpus, MaxMemoryMB: memory}}
	}
}

func TestPullOnFirstUse(t *testing.T) {
	pulled := 0
	r := newRig(t, Options{Images: store{pull: func(_ context.Context, image settings.Image) (Root, error) {
		pulled++
		return Root{Image: image.OCIRef}, nil
	}}}, nil)
	r.create()
	if pulled != 1 || r.driver.Specs()[0].Image != "docker.io/iiidev/python:latest" {
		t.Errorf("%d, %v", pulled, r.driver.Specs()[0].Image)
	}
}

// TestCreatesAtOnce tests that a burst of creates gets exactly the maximum number of sandboxes.
func TestCreatesAtOnce(t *testing.T) {
	r := newRig(t, Options{}, func(c *settings.Config) { c.MaxConcurrentSandboxes = 5 })
	var mu sync.Mutex
	var made, refused int
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := r.do(context.Background(), "create", object{"image": "python"})
			mu.Lock()
			defer mu.Unlock()
			var e *failure
			if err == nil {
				made++
			} else if errors.As(err, &e) && e.code == S400 {
				refused++
			}
		})
	}
	all.Wait()
	if made != 5 || refused != 45 {
		t.Errorf("%d made, %d refused", made, refused)
	}
}

// TestIdleSandboxesEnd tests that a sandbox ends after its idle timeout; a running program keeps
// it, listing it does not.
func TestIdleSandboxesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{}, nil)
		short := r.call("create", object{"image": "python", "idle_timeout_secs": 20})["sandbox_id"]
		long := r.create() // 300 s
		busy := r.call("create", object{"image": "python", "idle_timeout_secs": 20})["sandbox_id"]
		go r.do(t.Context(), "exec", object{"sandbox_id": busy, "argv": []string{"sleep", "100s"}})
		for range 19 {
			time.Sleep(time.Second)
			r.call("list", object{})
		}
		r.call("fs::ls", object{"sandbox_id": short, "path": "/"}) // counts as work
		time.Sleep(19 * time.Second)
		r.call("fs::ls", object{"sandbox_id": short, "path": "/"})
		time.Sleep(21 * time.Second)
		r.failed("fs::ls", object{"sandbox_id": short, "path": "/"}, S002)
		if n := len(r.call("list", object{})["sandboxes"].([]any)); n != 2 {
			t.Errorf("%d sandboxes are there", n)
		}
		time.Sleep(45 * time.Second) // busy's program ended 5 s ago
		r.call("fs::ls", object{"sandbox_id": busy, "path": "/"})
		time.Sleep(25 * time.Second)
		r.failed("exec", object{"sandbox_id": busy, "cmd": "true"}, S002)
		r.call("fs::ls", object{"sandbox_id": long, "path": "/"})
		time.Sleep(301 * time.Second)
		r.failed("stop", object{"sandbox_id": long}, S002)
	})
}

// TestStopping tests that a sandbox cannot be used from the start of its stop.
func TestStopping(t *testing.T) {
	until := make(chan struct{})
	r := newRig(t, Options{}, nil, func(d *faulty.Driver) { d.OnDestroy = faulty.Stall(until) })
	id := r.create()
	stopped := make(chan error, 1)
	go func() {
		_, err := r.do(context.Background(), "stop", object{"sandbox_id": id, "wait": true})
		stopped <- err
	}()
	for r.call("list", object{})["sandboxes"].([]any)[0].(map[string]any)["stopped"] != true {
		time.Sleep(time.Millisecond)
	}
	r.failed("exec", object{"sandbox_id": id, "cmd": "true"}, S004)
	r.failed("fs::ls", object{"sandbox_id": id, "path": "/"}, S004)
	r.failed("stop", object{"sandbox_id": id}, S004)
	// Without wait the call returns at once.
	other := r.create()
	r.call("stop", object{"sandbox_id": other})
	r.failed("stop", object{"sandbox_id": other}, S002)
	close(until)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	r.failed("stop", object{"sandbox_id": id}, S002)
}

// TestStopThatNobodyWaitsFor tests that a stop continues after its caller has left.
func TestStopThatNobodyWaitsFor(t *testing.T) {
	until := make(chan struct{})
	r := newRig(t, Options{}, nil, func(d *faulty.Driver) { d.OnDestroy = faulty.Stall(until) })
	id := r.create()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.do(ctx, "stop", object{"sandbox_id": id, "wait": true})
	var e *failure
	if !errors.As(err, &e) || e.code != S300 {
		t.Errorf("%v", err)
	}
	close(until)
}

// TestSandboxDies tests that the death of a sandbox fails its calls, and that it disappears.
func TestSandboxDies(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := r.create()
	failed := make(chan error, 1)
	go func() {
		_, err := r.do(context.Background(), "exec", object{"sandbox_id": id, "argv": []string{"block-until", "never"}})
		failed <- err
	}()
	<-r.driver.Reached("never")
	r.driver.DieAll()
	var e *failure
	if err := <-failed; !errors.As(err, &e) || e.code != S300 {
		t.Errorf("%v", err)
	}
	for {
		_, err := r.do(context.Background(), "fs::ls", object{"sandbox_id": id, "path": "/"})
		if errors.As(err, &e); e.code == S002 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCallerIsGone tests that a program ends when its caller has left.
func TestCallerIsGone(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := r.create()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := r.do(ctx, "exec", object{"sandbox_id": id, "argv": []string{"block-until", "never"}})
		failed <- err
	}()
	<-r.driver.Reached("never")
	cancel()
	var e *failure
	if err := <-failed; !errors.As(err, &e) || e.code != S300 {
		t.Errorf("%v", err)
	}
	if got := r.call("exec", object{"sandbox_id": id, "argv": []string{"print", "stdout", "on"}}); got["stdout"] != "on\n" {
		t.Errorf("%v", got)
	}
}

func TestOutcomesOfPrograms(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := r.create()
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"oom"}, "exit_code:137 out_of_memory:true"},
		{[]string{"signal", "11"}, "exit_code:139"},
		{[]string{"exit", "255"}, "exit_code:255"},
	} {
		got := r.call("exec", object{"sandbox_id": id, "argv": c.argv})
		delete(got, "duration_ms")
		for _, want := range strings.Fields(c.want) {
			if !strings.Contains(fmt.Sprint(got), want) {
				t.Errorf("%v: %v", c.argv, got)
			}
		}
		if _, told := got["out_of_memory"]; told != (c.argv[0] == "oom") || got["success"] != false {
			t.Errorf("%v: %v", c.argv, got)
		}
	}
	r.failed("exec", object{"sandbox_id": id, "argv": []string{"x\x00y"}}, S001)
	r.failed("exec", object{"sandbox_id": id, "cmd": "true", "env": []string{"=x"}}, S001)
}

func TestNoFiles(t *testing.T) {
	r := newRig(t, Options{}, nil, func(d *faulty.Driver) { d.NoFiles = true })
	id := r.create()
	for name, ask := range map[string]object{
		"ls": {"path": "/"}, "stat": {"path": "/"}, "mkdir": {"path": "/x"}, "rm": {"path": "/x"}, "chmod": {"path": "/x", "mode": "0"},
		"mv": {"src": "/x", "dst": "/y"}, "grep": {"path": "/", "pattern": "x"}, "sed": {"path": "/", "pattern": "x", "replacement": ""},
		"read": {"path": "/x"}, "write": {"path": "/x", "content": ""},
	} {
		ask["sandbox_id"] = id
		r.failed("fs::"+name, ask, S219)
	}
}

func TestClose(t *testing.T) {
	until := make(chan struct{})
	r := newRig(t, Options{}, nil, func(d *faulty.Driver) { d.OnDestroy = faulty.Stall(until) })
	r.create()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.failed("create", object{"image": "python"}, S300)
	close(until)
}

func TestConfigIsChecked(t *testing.T) {
	c := settings.Default()
	c.CustomImages = map[string]string{"node": "x"}
	if _, err := New(Options{Config: c}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
}
