package function

import (
	"context"
	"runtime"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// TestSandboxesOfOthers tests that sandboxes of the engine's other protocols are listed, used and
// stopped, by either form of their ids, and take no slot.
func TestSandboxesOfOthers(t *testing.T) {
	r := newRig(t, Options{}, func(c *settings.Config) { c.MaxConcurrentSandboxes = 1 })
	s, err := r.engine.Create(context.Background(), sandbar.Spec{Name: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	own := r.create()
	all := r.call("list", object{})["sandboxes"].([]any)
	if len(all) != 2 || all[0].(map[string]any)["sandbox_id"] != s.ID().UUID() || all[0].(map[string]any)["name"] != "theirs" ||
		all[0].(map[string]any)["image"] != "host" || all[1].(map[string]any)["sandbox_id"] != own {
		t.Errorf("listed: %v", all)
	}
	for _, id := range []string{string(s.ID()), s.ID().UUID()} {
		r.call("fs::write", object{"sandbox_id": id, "path": "/tmp/x", "content": id})
		if got := r.call("exec", object{"sandbox_id": id, "cmd": "print stdout hello"}); got["stdout"] != "hello\n" {
			t.Errorf("%s: %v", id, got)
		}
	}
	id, err := sandbar.ParseUUID(own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Get(context.Background(), id); err != nil {
		t.Errorf("the engine does not know %s: %v", own, err)
	}
	if got := r.call("stop", object{"sandbox_id": string(s.ID()), "wait": true}); got["sandbox_id"] != s.ID().UUID() {
		t.Errorf("stopped %v", got)
	}
	if _, err := r.engine.Get(context.Background(), s.ID()); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("after the stop: %v", err)
	}
	r.failed("exec", object{"sandbox_id": string(s.ID()), "cmd": "x"}, S002)
	// A sandbox that another protocol stops disappears here too.
	if err := r.engine.Stop(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	r.failed("exec", object{"sandbox_id": own, "cmd": "x"}, S002)
	r.create() // the slot is free
}

// TestSandboxesOfOthersKeptApart tests that hidden sandboxes cannot be found, and that sandboxes of
// others outlive the functions.
func TestSandboxesOfOthersKeptApart(t *testing.T) {
	r := newRig(t, Options{Visible: func(i engine.Info) bool { return i.Spec.Client.Name == "" }}, nil)
	s, err := r.engine.Create(context.Background(), sandbar.Spec{Client: sandbar.Client{Name: "ci"}})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := r.engine.Create(context.Background(), sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if all := r.call("list", object{})["sandboxes"].([]any); len(all) != 1 {
		t.Errorf("listed: %v", all)
	}
	for _, f := range []string{"exec", "stop", "fs::ls"} {
		r.failed(f, object{"sandbox_id": s.ID().UUID(), "cmd": "x", "path": "/"}, S002)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*engine.Sandbox{s, seen} {
		if _, err := r.engine.Get(context.Background(), x.ID()); err != nil {
			t.Errorf("Close has ended a sandbox of another protocol: %v", err)
		}
		if err := r.engine.Stop(context.Background(), x.ID()); err != nil {
			t.Error(err)
		}
	}
}

// TestMoreThanTheHost tests that limits beyond the host's resources are reduced to these.
func TestMoreThanTheHost(t *testing.T) {
	r := newRig(t, Options{HostMemory: 1 << 30}, nil)
	r.call("create", object{"image": "python", "cpus": 4096, "memory_mb": 4294967295})
	if l := r.driver.Specs()[0].Limits; l.CPUs != float64(runtime.NumCPU()) || l.Memory != 1<<30 {
		t.Errorf("%v processors, %d bytes", l.CPUs, l.Memory)
	}
}

// TestCatalogueTellsWhatAPresetIs tests that the list of images names a preset's substitute.
func TestCatalogueTellsWhatAPresetIs(t *testing.T) {
	r := newRig(t, Options{Images: store{here: map[string]Root{"python": {Image: "host", Ref: "host"}}}}, nil)
	got := r.call("catalog::list", object{})["images"].([]any)
	for i, want := range []string{"host", "docker.io/iiidev/node:latest"} {
		if ref := got[i].(map[string]any)["oci_ref"]; ref != want {
			t.Errorf("%v, want %s", got[i], want)
		}
	}
}
