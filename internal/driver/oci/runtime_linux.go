package oci

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// The options of the drivers.
const (
	optionRuntime = "runtime"
	optionArgs    = "args"
	optionPaths   = "paths"
)

// kind is a runtime whose command line is known.
type kind string

const (
	kindRunc  kind = "runc"
	kindCrun  kind = "crun"
	kindRunsc kind = "runsc"
)

// runtime is a container runtime of this host.
type runtime struct {
	kind    kind
	path    string
	version string
	args    []string // of the operator's, before the command
	kvm     bool     // gVisor: its platform is KVM rather than systrap
}

// probeTimeout bounds asking a runtime for its version.
const probeTimeout = 10 * time.Second

// findRuntime returns the runtime that the operator named, or else the first of
// names that is there and works on this host.
func findRuntime(chosen string, args []string, names ...kind) (*runtime, error) {
	if chosen != "" {
		return openRuntime(chosen, args, names)
	}
	var problems []error
	for _, n := range names {
		r, err := openRuntime(string(n), args, names)
		if err == nil {
			return r, nil
		}
		problems = append(problems, err)
	}
	if len(problems) == 1 {
		return nil, problems[0]
	}
	return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: optionRuntime, Err: errors.Join(problems...),
		Message: "no container runtime of this host can be used",
		Fix:     "install runc, or name a runtime with the driver's option " + optionRuntime}
}

// openRuntime looks at one runtime: a name in PATH, or a path.
func openRuntime(name string, args []string, allowed []kind) (*runtime, error) {
	lack := func(what, fix string, err error) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: optionRuntime, Message: "container runtime " + sandbar.Quote(name, 200) + " " + what, Fix: fix, Err: err}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, lack("is not on this host", installHint(name), err)
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode()&0o005 != 0o005 {
		err = errors.New("its mode is " + info.Mode().String())
	}
	if err != nil {
		return nil, lack("cannot be executed by others than its owner, and the driver runs it without rights", "chmod o+rx "+path, err)
	}
	out, err := askVersion(path, probeTimeout)
	if err != nil {
		return nil, lack("does not tell its version", "see whether "+path+" --version works", err)
	}
	k, version := parseVersion(out)
	if !slices.Contains(allowed, k) {
		return nil, lack("is none that this driver knows: its version is "+sandbar.Quote(version, 100), "use one of "+joinKinds(allowed), nil)
	}
	r := &runtime{kind: k, path: path, version: version, args: args}
	switch {
	case k == kindCrun && hybridGroups():
		return nil, lack("refuses hosts on which some control groups are of version 1 and some of version 2", "use runc, or boot with systemd.unified_cgroup_hierarchy=1", nil)
	case k == kindRunsc:
		r.kvm = kvmForAll()
	}
	return r, nil
}

// maxVersion is how much of what a runtime says of its version is kept, in bytes.
const maxVersion = 4 << 10

// askVersion runs path --version. What it leaves running ends with it.
func askVersion(path string, bound time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var out beginning
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Stdout = &out
	cmd.WaitDelay = bound / 10 // for processes that have its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// In time also where the runtime has ended and a process of its has not.
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = end() // it fails where nothing is left, as it should be
	if errors.Is(err, exec.ErrWaitDelay) {
		err = errors.New("a process that it started goes on")
	}
	return string(out), err
}

// beginning keeps the first maxVersion bytes that are written.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxVersion-len(*b))]...)
	return len(p), nil
}

// open opens the runtime's program. runc and crun are copied into a sealed file in
// memory, as they do themselves for every container if they are not in one: so
// that no container can ever change the host's.
func (r *runtime) open() (*os.File, error) {
	if r.kind == kindRunsc {
		f, err := os.Open(r.path)
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Unsupported, "opening the container runtime: %w", err)
		}
		return f, nil
	}
	b, err := os.ReadFile(r.path)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "reading the container runtime: %w", err)
	}
	return spawn.Sealed(string(r.kind), b, unix.MFD_EXEC)
}

func installHint(name string) string {
	switch kind(name) {
	case kindRunc, kindCrun:
		return "install it (Debian: apt-get install " + name + ")"
	case kindRunsc:
		return "install gVisor's runsc (gvisor.dev/docs/user_guide/install), or name its path with the driver's option " + optionRuntime
	}
	return "name a runtime that is there with the driver's option " + optionRuntime
}

func joinKinds(all []kind) string {
	var names []string
	for _, k := range all {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// parseVersion finds out which runtime says this of itself: the first line
// begins with its name, and ends with its version.
func parseVersion(out string) (kind, string) {
	first, _, _ := strings.Cut(out, "\n")
	name, _, _ := strings.Cut(first, " ")
	return kind(name), strings.TrimSpace(first)
}

// hybridGroups reports what crun calls so: version 2 mounted beside version 1,
// with controllers of its own.
func hybridGroups() bool {
	b, err := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers")
	return err == nil && strings.TrimSpace(string(b)) != ""
}

// kvmForAll reports whether a process without rights may use the processor's
// virtualization.
func kvmForAll() bool {
	var st unix.Stat_t
	return unix.Stat("/dev/kvm", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Mode&0o006 == 0o006
}

// command is what the stage is to execute for a container.
func (r *runtime) command(base, id string) []string {
	args := append([]string{string(r.kind), "--root", base + wire.StageState}, r.flags()...)
	args = append(args, r.args...)
	args = append(args, "run")
	switch r.kind {
	case kindRunsc:
		socket := strconv.Itoa(wire.StageSocketFD)
		args = append(args, "--pass-fd="+socket+":"+socket, "--exec-fd="+strconv.Itoa(wire.StageAgentFD))
	case kindCrun:
		args = append(args, "--preserve-fds=2")
	default:
		// Nothing may use keys, so that the container needs no ring of its own.
		args = append(args, "--preserve-fds", "2", "--no-new-keyring")
	}
	return append(args, "--bundle", base+wire.StageBundle, id)
}

// env is the runtime's environment. What makes one container and waits for its
// end needs few threads; gVisor's kernel needs what processors there are.
func (r *runtime) env() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !r.guestKernel() {
		env = append(env, "GOMAXPROCS=2")
	}
	return env
}

// flags are those that a runtime always gets. The control group is made, and
// entered, before there is a runtime; the network is none.
func (r *runtime) flags() []string {
	switch r.kind {
	case kindCrun:
		return []string{"--cgroup-manager=disabled"}
	case kindRunsc:
		platform := "systrap"
		if r.kvm {
			platform = "kvm"
		}
		// No layer of its own above what is bounded already; nobody else has the
		// files open, so that it may keep what it knows of them.
		return []string{"--platform=" + platform, "--network=none", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--overlay2=none",
			"--file-access=exclusive", "--file-access-mounts=exclusive", "--host-uds=none", "--host-fifo=none"}
	}
	return nil
}

// passes reports whether descriptors pass from the host into the container.
func (r *runtime) passes() bool { return r.kind != kindRunsc }

// guestKernel reports whether programs run on a kernel of the runtime's.
func (r *runtime) guestKernel() bool { return r.kind == kindRunsc }
