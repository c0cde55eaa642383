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

// kind is a supported runtime. The value is the name of its program.
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
	args    []string // the operator's, before the command
	kvm     bool     // gVisor uses its KVM platform instead of systrap
}

// probeTimeout bounds the execution of RUNTIME --version.
const probeTimeout = 10 * time.Second

// findRuntime returns the chosen runtime or, if chosen is "", the first of names that works on this
// host. Unsupported: there is none.
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
		Fix:     "install runc, or set the driver's option " + optionRuntime}
}

// openRuntime checks one runtime. name is a path or a name in PATH. Unsupported: it does not work.
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
		return nil, lack("can be executed only by its owner or group, and the driver runs it as another user", "chmod o+rx "+path, err)
	}
	out, err := askVersion(path, probeTimeout)
	if err != nil {
		return nil, lack("does not print its version", "run "+path+" --version", err)
	}
	k, version := parseVersion(out)
	if !slices.Contains(allowed, k) {
		return nil, lack("is not supported by this driver: its version is "+sandbar.Quote(version, 100), "use one of "+joinKinds(allowed), nil)
	}
	r := &runtime{kind: k, path: path, version: version, args: args}
	switch {
	case k == kindCrun && hybridCgroups():
		return nil, lack("does not support hosts with cgroup controllers of version 1 and of version 2", "use runc, or boot with systemd.unified_cgroup_hierarchy=1", nil)
	case k == kindRunsc:
		r.kvm = anyUserHasKVM()
	}
	return r, nil
}

// maxVersion is the number of bytes kept of the output of RUNTIME --version.
const maxVersion = 4 << 10

// askVersion runs path --version and returns its output. It kills remaining processes of its
// process group.
func askVersion(path string, bound time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var out headBuffer
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Stdout = &out
	cmd.WaitDelay = bound / 10 // bounds the wait for descendants that have the output pipe open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = end() // ESRCH if no process is left
	if errors.Is(err, exec.ErrWaitDelay) {
		err = errors.New("a process that it started still runs")
	}
	return string(out), err
}

// headBuffer keeps the first maxVersion bytes that are written.
type headBuffer []byte

func (b *headBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxVersion-len(*b))]...)
	return len(p), nil
}

// open opens the runtime's program. For runc and crun it is a sealed copy in memory, so that no
// container can change the host's file (CVE-2019-5736). They would otherwise copy themselves for
// each container.
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
	return "set the driver's option " + optionRuntime + " to an installed runtime"
}

func joinKinds(all []kind) string {
	var names []string
	for _, k := range all {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// parseVersion parses the output of RUNTIME --version. The first line is the runtime's name and
// version; the version that it returns is the whole line.
func parseVersion(out string) (kind, string) {
	first, _, _ := strings.Cut(out, "\n")
	name, _, _ := strings.Cut(first, " ")
	return kind(name), strings.TrimSpace(first)
}

// hybridCgroups reports whether this host has cgroup v1 and also v2 with controllers.
func hybridCgroups() bool {
	b, err := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers")
	return err == nil && strings.TrimSpace(string(b)) != ""
}

// anyUserHasKVM reports whether any user may open /dev/kvm.
func anyUserHasKVM() bool {
	var st unix.Stat_t
	return unix.Stat("/dev/kvm", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Mode&0o006 == 0o006
}

// command returns the command line that the stage executes for a container.
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
		// The seccomp filter denies the system calls for keys, so the container needs no keyring.
		args = append(args, "--preserve-fds", "2", "--no-new-keyring")
	}
	return append(args, "--bundle", base+wire.StageBundle, id)
}

// env returns the runtime's environment. runc and crun create one container and wait for its end,
// so two processors are enough. gVisor's kernel uses all.
func (r *runtime) env() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !r.guestKernel() {
		env = append(env, "GOMAXPROCS=2")
	}
	return env
}

// flags returns the runtime's fixed options. The runtime manages no cgroup, since it starts in that
// of the sandbox, and no network.
func (r *runtime) flags() []string {
	switch r.kind {
	case kindCrun:
		return []string{"--cgroup-manager=disabled"}
	case kindRunsc:
		platform := "systrap"
		if r.kvm {
			platform = "kvm"
		}
		// No overlay: the stage's file systems are already bounded. Exclusive file access allows
		// caching, because no other process of the host has these files open.
		return []string{"--platform=" + platform, "--network=none", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--overlay2=none",
			"--file-access=exclusive", "--file-access-mounts=exclusive", "--host-uds=none", "--host-fifo=none"}
	}
	return nil
}

// passesFDs reports whether descriptors can be passed into the container.
func (r *runtime) passesFDs() bool { return r.kind != kindRunsc }

// guestKernel reports whether programs run on a kernel of the runtime (gVisor).
func (r *runtime) guestKernel() bool { return r.kind == kindRunsc }
