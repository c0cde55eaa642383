package oci

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// The configuration of each kind of container has the settings of its boundary and no field that
// the runtime specification lacks, and it refers only to files that the stage has created.
func TestConfig(t *testing.T) {
	profile, err := policy.CompileProfile("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]container{
		"runc":         {base: base, passesFDs: true, ranged: true, owner: "1-2", profile: profile},
		"runc image":   {base: base, passesFDs: true, ranged: true, agentUID: agentUID, image: true, owner: "1-2", profile: profile},
		"runc user":    {base: base, passesFDs: true, owner: "1-2", profile: profile},
		"gvisor":       {base: base, guestKernel: true, ranged: true, owner: "1-2"},
		"gvisor image": {base: base, guestKernel: true, ranged: true, agentUID: agentUID, image: true, owner: "1-2"},
	} {
		b, err := c.config()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var s specs.Spec
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			t.Errorf("%s is not of the runtime specification: %v", name, err)
			continue
		}
		checkProcess(t, name, c, s.Process)
		checkLinux(t, name, c, s.Linux)
		if s.Hooks != nil || s.Root == nil || filepath.IsAbs(s.Root.Path) || strings.Contains(s.Root.Path, "..") {
			t.Errorf("%s: root %+v, hooks %+v", name, s.Root, s.Hooks)
		}
		for _, m := range s.Mounts {
			if slices.Contains([]string{"bind", "rbind"}, m.Type) && !strings.HasPrefix(m.Source, base+"/bundle/rootfs") {
				t.Errorf("%s shows %s of the host at %s", name, m.Source, m.Destination)
			}
			if m.Destination == "/" {
				t.Errorf("%s mounts over its root", name)
			}
		}
	}
}

func checkProcess(t *testing.T, name string, c container, p *specs.Process) {
	t.Helper()
	if !p.NoNewPrivileges || p.Terminal || p.User.UID != c.agentUID || p.User.GID != c.agentUID || len(p.User.AdditionalGids) > 0 {
		t.Errorf("%s: the agent is started as %+v", name, p)
	}
	mode := map[bool]string{true: "socket", false: "stream"}[c.passesFDs]
	if want := []string{"/proc/self/fd/4", mode, "1-2"}; !slices.Equal(p.Args, want) {
		t.Errorf("%s: arguments %q, want %q", name, p.Args, want)
	}
	want := []string{}
	if c.ranged {
		want = append(want, "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP")
	}
	if c.guestKernel {
		want = append(want, "CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
	}
	for _, set := range [][]string{p.Capabilities.Bounding, p.Capabilities.Permitted, p.Capabilities.Effective} {
		if !slices.Equal(set, want) {
			t.Errorf("%s: capabilities %q, want %q", name, set, want)
		}
	}
}

func checkLinux(t *testing.T, name string, c container, l *specs.Linux) {
	t.Helper()
	want := []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace}
	if !c.guestKernel {
		want = append(want, specs.CgroupNamespace)
	}
	for _, n := range want {
		if !slices.Contains(l.Namespaces, specs.LinuxNamespace{Type: n}) {
			t.Errorf("%s has no %s namespace of its own", name, n)
		}
	}
	if c.guestKernel {
		return
	}
	if l.Seccomp == nil || l.Seccomp.DefaultAction != specs.ActErrno || len(l.Seccomp.Syscalls) == 0 || !slices.Contains(l.MaskedPaths, "/proc/kcore") || !slices.Contains(l.ReadonlyPaths, "/proc/sys") {
		t.Errorf("%s: seccomp %v, masks %q, read-only %q", name, l.Seccomp, l.MaskedPaths, l.ReadonlyPaths)
	}
}

func TestCommand(t *testing.T) {
	for want, r := range map[string]*runtime{
		"runc --root /b/state run --preserve-fds 2 --no-new-keyring --bundle /b/bundle 1-2.sb_x":                  {kind: kindRunc},
		"crun --root /b/state --cgroup-manager=disabled --debug run --preserve-fds=2 --bundle /b/bundle 1-2.sb_x": {kind: kindCrun, args: []string{"--debug"}},
		"runsc --root /b/state --platform=systrap --network=none --ignore-cgroups --in-sandbox-cgroup=v2 --overlay2=none --file-access=exclusive --file-access-mounts=exclusive " +
			"--host-uds=none --host-fifo=none run --pass-fd=3:3 --exec-fd=4 --bundle /b/bundle 1-2.sb_x": {kind: kindRunsc},
		"runsc --root /b/state --platform=kvm --network=none --ignore-cgroups --in-sandbox-cgroup=v2 --overlay2=none --file-access=exclusive --file-access-mounts=exclusive " +
			"--host-uds=none --host-fifo=none run --pass-fd=3:3 --exec-fd=4 --bundle /b/bundle 1-2.sb_x": {kind: kindRunsc, kvm: true},
	} {
		if got := strings.Join(r.command("/b", containerID("1-2", "sb_x")), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if name, ok := ownerOf(r.command("/b", "1-2.sb_x")); !ok || name != "1-2" {
			t.Errorf("%s would belong to %q, %v", r.kind, name, ok)
		}
	}
	for _, args := range []string{"runc run mine", "runc", "docker-init 1-2.sb_x", "runc --root /r run 1-2.other", ""} {
		if name, ok := ownerOf(strings.Split(args, " ")); ok {
			t.Errorf("%q is taken for %s's", args, name)
		}
	}
}

// The error for an unusable runtime has its reason and a fix. The driver never selects another
// runtime than the configured one.
func TestFindRuntime(t *testing.T) {
	dir := t.TempDir()
	write := func(name, script string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	good := write("runc", "echo runc version 9.9; echo spec: 1.0", 0o755)
	for name, want := range map[string]string{
		"nothing-of-that-name":                         "not on this host",
		filepath.Join(dir, "x"):                        "not on this host",
		write("private", "echo runc version 1", 0o700): "only by its owner",
		write("mute", "exit 3", 0o755):                 "does not print its version",
		write("other", "echo kata version 1", 0o755):   "kata version 1",
	} {
		_, err := findRuntime(name, nil, kindRunc, kindCrun)
		var e *sandbar.Error
		if !errors.As(err, &e) || e.Code != sandbar.Unsupported || !strings.Contains(e.Message, want) || e.Fix == "" || e.Field != "runtime" {
			t.Errorf("%s: %v (%+v), want %q", name, err, e, want)
		}
	}
	r, err := findRuntime("", []string{"--debug"}, kindRunsc, kindRunc)
	if err != nil && !strings.Contains(err.Error(), "runsc") {
		t.Fatal(err)
	}
	if err == nil && r.kind == kindRunc && (r.path != good || r.version != "runc version 9.9") {
		t.Errorf("found %+v", r)
	}
	if _, err := findRuntime(good, nil, kindRunsc); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("runc was taken for gVisor: %v", err)
	}
	t.Setenv("PATH", filepath.Join(dir, "empty"))
	if _, err := findRuntime("", nil, kindRunc, kindCrun, kindRunsc); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "install runc") {
		t.Errorf("with no runtime at all: %v", err)
	}
}
