package vm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

const (
	// monitorUID is the uid and gid of the monitor inside its user namespace.
	monitorUID = 1000
	// monitorRoot is the directory on which the monitor's root is mounted, in its own mount
	// namespace.
	monitorRoot = "/tmp"
	// reserve is the memory of a machine besides the memory limit of its programs, in bytes: the
	// guest's kernel and the agent use about that much, with an initial file system of usualInitial.
	reserve      = 80 << 20
	usualInitial = 5 << 20
	// monitorMemory is the memory of a monitor besides that of the machine, in bytes: its heap and
	// the buffer of translated instructions.
	monitorMemory = 256 << 20
	// monitorTasks bounds the threads of a monitor.
	monitorTasks = 64
)

// resources are the resources of one machine on the host. Init is the monitor.
type resources struct {
	sandboxes.Resources
	d     *Driver
	vm    monitor.VM
	saves *savable     // nil for a machine that boots
	link  *egress.Link // nil: the machine has no network
}

var _ monitor.Launcher = (*resources)(nil)

func newResources(d *Driver, id sandbar.ID) *resources {
	return &resources{Resources: sandboxes.Resources{ID: id}, d: d}
}

// prepare takes the cgroup and the ids of a machine with this memory, in bytes.
func (r *resources) prepare(memory int64, l sandbar.Limits) error {
	r.OnEnd = r.closeVM
	if err := r.TakeRange(); err != nil {
		return err
	}
	l.Memory, l.PIDs = memory+monitorMemory, monitorTasks
	return r.TakeGroup(hostenv.GroupLimits(r.d.Groups.Caps(), l, 0))
}

// closeVM closes the network and the connections to the monitor, which has ended.
func (r *resources) closeVM() error {
	r.saves.close()
	var err error
	if r.link != nil {
		err = r.link.Close()
	}
	if r.vm != nil {
		err = errors.Join(err, r.vm.Close())
	}
	return err
}

// Launch implements monitor.Launcher.
func (r *resources) Launch(ctx context.Context, p monitor.Program) error {
	program, err := os.Open(p.Path)
	if err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "opening the monitor's program: %w", err)
	}
	defer program.Close()
	conn, err := r.Boot(r.d.IDs.Request(agent.ModeMonitor, r.Range, monitorUID))
	if err != nil {
		return err
	}
	fds := []int{int(program.Fd()), int(p.Stderr.Fd())}
	for _, f := range p.Files {
		fds = append(fds, int(f.Fd()))
	}
	plan := &wire.Monitor{
		Hostname: "sandbar", Root: monitorRoot, Mounts: r.d.monitorMounts(p.Libraries), Mitigate: r.d.Mitigate, UID: monitorUID, GID: monitorUID,
		Rlimits: []wire.Rlimit{{Resource: policy.RlimitCore, Soft: 1, Hard: 1}}, Seccomp: r.d.filter, Args: p.Args, Env: p.Env, Files: uint8(len(p.Files)),
	}
	return client.StartMonitor(ctx, conn, plan, fds...)
}

// monitorMounts returns the root of a monitor: the host's libraries, the monitor's own firmware,
// and /proc, read-only.
func (d *Driver) monitorMounts(more []string) []wire.Mount {
	const flags = wire.MountReadOnly | wire.MountNoSuid | wire.MountNoDev
	owner := uint32(0)
	if !d.IDs.Ranged {
		owner = monitorUID // the only id of the user namespace
	}
	mounts := []wire.Mount{{Kind: wire.MountTmpfs, Target: "/", Flags: wire.MountNoSuid | wire.MountNoDev | wire.MountNoExec, Size: 64 << 10, Inodes: 256, Mode: 0o755,
		UID: owner, GID: owner}}
	for _, dir := range d.layout.Dirs {
		switch {
		case !strings.HasPrefix(dir.Name, "/lib") && dir.Name != "/usr":
		case dir.Link != "":
			mounts = append(mounts, wire.Mount{Kind: wire.MountSymlink, Source: dir.Link, Target: dir.Name})
		case dir.Name == "/usr":
			for _, sub := range []string{"/usr/lib", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios", "/usr/share/qemu-kvm", "/usr/share/seavgabios"} {
				mounts = append(mounts, wire.Mount{Kind: wire.MountBind, Source: sub, Target: sub, Flags: flags | wire.MountOptional})
			}
		default:
			mounts = append(mounts, wire.Mount{Kind: wire.MountBind, Source: dir.Name, Target: dir.Name, Flags: flags})
		}
	}
	for _, path := range more {
		mounts = append(mounts, wire.Mount{Kind: wire.MountAttach, Source: path, Target: path, Flags: flags | wire.MountNoExec})
	}
	return append(mounts,
		wire.Mount{Kind: wire.MountBind, Source: "/etc/ld.so.cache", Target: "/etc/ld.so.cache", Flags: flags | wire.MountNoExec | wire.MountOptional},
		wire.Mount{Kind: wire.MountProc, Target: "/proc", Flags: wire.MountNoSuid | wire.MountNoDev | wire.MountNoExec},
		wire.Mount{Kind: wire.MountSetFlags, Target: "/", Flags: flags | wire.MountNoExec})
}

// bootTimeout bounds the boot of a machine up to the agent's first frame, and each step after it.
const bootTimeout = 3 * time.Minute

// setupTimeout bounds the creation of a sandbox: the first one of a kind boots a machine, and on a
// busy host an emulated one is restored when others have got their share of the processors.
const setupTimeout = bootTimeout + time.Minute

// boot boots a machine of a kind and saves it into the files of a snapshot. It returns the process
// of the interpreter, if the kind has one.
func (r *resources) boot(ctx context.Context, k kind, s monitor.Snapshot) (carried *client.Carried, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := r.prepare(k.machineMemory(), sandbar.Limits{}); err != nil {
		return nil, err
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for _, path := range []string{k.rootPath, r.d.kernel.Vmlinux, r.d.initramfs} {
		f, err := os.Open(path)
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Unavailable, "opening what a machine boots: %w", err)
		}
		open = append(open, f)
	}
	b := monitor.Boot{Machine: k.machine(machineName(r.d.Owner, r.ID), open[0]), Kernel: open[1], Initramfs: open[2],
		Cmdline: k.Cmdline, Snapshot: s}
	if k.Monitor.Accelerator == qemu.TCG {
		b.Cmdline += counterParameter() // not part of the kind: two measurements differ
	}
	vm, err := r.d.monitor.Boot(ctx, r, b)
	if err != nil {
		return nil, err
	}
	r.vm = vm
	conn, err := firstFrame(ctx, vm.Agent())
	if err != nil {
		return nil, r.ended("a machine could not boot", err)
	}
	box, err := client.New(ctx, conn, client.Options{Destroy: r.Destroy, Enforced: r.d.Facts.Enforced})
	if err != nil {
		return nil, r.ended("a machine could not boot", err)
	}
	if err := r.warm(ctx, box, k); err != nil {
		return nil, err
	}
	if k.Interpreter != nil {
		var end func()
		if carried, end, err = k.Interpreter.start(ctx, box, r.ID); err != nil {
			return nil, err
		}
		defer end()
	}
	own, err := renewal(hostenv.NewMachineID())
	own.Template = true
	if err == nil {
		err = box.Renew(ctx, own)
	}
	if err != nil {
		return nil, r.ended("a machine could not be prepared", err)
	}
	return carried, vm.Save(ctx)
}

// warm sets the agent up and runs programs once, so that restored machines have them in memory.
func (r *resources) warm(ctx context.Context, box *client.Sandbox, k kind) error {
	filter, err := policy.CompilePrograms(runtime.GOARCH, policy.TagLocks)
	if err != nil {
		return err
	}
	setup := &wire.Setup{Dir: sandbar.DefaultDir, Env: k.environment(nil), PIDs: unboundedPIDs, Rlimits: []wire.Rlimit{{Resource: policy.RlimitCore, Soft: 1, Hard: 1}},
		Capabilities: policy.MachineCapabilities(), ProgramSeccomp: filter}
	_, _, err = box.Setup(ctx, setup)
	if err == nil {
		own := &wire.Setup{Env: setup.Env}
		k.bounds.change(bounds{}, own)
		_, _, err = box.Setup(ctx, own)
	}
	if err != nil {
		return r.ended("a machine could not be prepared", err)
	}
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "exec cat /dev/null"}}, driver.Stdio{})
	if code := sandbar.CodeOf(err); code == sandbar.NotFound || code == sandbar.Denied {
		return nil // the image has no shell
	}
	if err == nil {
		_, err = p.Wait()
	}
	if err == nil {
		err = p.KillTree()
	}
	return err
}

// environment returns the environment of all programs of a sandbox.
func (k kind) environment(spec map[string]string) []string {
	if k.Host {
		return hostenv.HostEnvironment("root", spec)
	}
	return hostenv.Environment("root", spec)
}

// unboundedPIDs is a limit of processes that no machine reaches: the agent lowers it to what the
// machine's kernel can have.
const unboundedPIDs = 1 << 20

// ended adds the last words of the monitor to the error of a machine.
func (r *resources) ended(what string, err error) error {
	code := sandbar.CodeOf(err)
	if code == sandbar.Internal {
		code = sandbar.Unavailable
	}
	select {
	case <-r.vm.Dead():
		what += "; its monitor has ended"
	default:
	}
	if words := r.vm.LastWords(); words != "" {
		what += "; the monitor's last words: " + sandbar.Quote(words, 500)
	}
	return &sandbar.Error{Code: code, Message: what, Err: err, Fix: "run `sandbar doctor`; `sandbar vm setup --refresh` prepares the kernel again"}
}

// firstFrame waits for the first bytes of a booted machine. If they are the report of a failed boot
// it returns it as an error.
func firstFrame(ctx context.Context, conn net.Conn) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReaderSize(conn, 1<<10)
	first, err := r.Peek(wire.HeaderSize)
	if ctx.Err() != nil {
		return nil, sandbar.Errorf(sandbar.Timeout, "it did not answer in time: %w", ctx.Err())
	}
	if err != nil {
		return nil, errors.New("it powered off without a message")
	}
	if strings.HasPrefix(guest.FailurePrefix, string(first)) {
		line, _ := r.ReadString('\n')
		return nil, errors.New(sandbar.Quote(strings.TrimSpace(strings.TrimPrefix(line, guest.FailurePrefix)), 300))
	}
	rest, _ := r.Peek(r.Buffered())
	return &prefixed{Conn: conn, r: io.MultiReader(bytes.NewReader(bytes.Clone(rest)), conn)}, nil
}

// prefixed is a connection whose first bytes have been read already.
type prefixed struct {
	net.Conn
	r io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.r.Read(b) }

// restore makes a sandbox from a template. std are the streams of the template's interpreter.
func (r *resources) restore(ctx context.Context, t *template, s sandbar.Spec, std driver.Stdio) (*sandbox, error) {
	snapshot, err := t.open()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unavailable, "opening a snapshot: %w", err)
	}
	defer closeSnapshot(snapshot)
	root, err := os.Open(t.kind.rootPath)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unavailable, "opening the root of a machine: %w", err)
	}
	defer root.Close()
	box, err := r.start(ctx, t.kind, root, snapshot, s, client.Options{Carried: t.carried, CarriedStdio: std})
	if err != nil {
		return nil, err
	}
	r.saves.machineID = hostenv.NewMachineID()
	own, err := renewal(r.saves.machineID)
	if err == nil {
		err = box.RenewAndSetup(ctx, own, limits(t.kind, s))
	}
	if err != nil {
		return nil, r.ended("a restored machine does not answer", err)
	}
	return &sandbox{Sandbox: box, r: r, warmUp: warmUp(t.kind)}, nil
}

// start starts the machine of a snapshot. o are the options of the agent's client that depend on
// the snapshot. The caller keeps the files.
func (r *resources) start(ctx context.Context, k kind, root *os.File, snapshot monitor.Snapshot, s sandbar.Spec, o client.Options) (box *client.Sandbox, err error) {
	if err := r.prepare(k.machineMemory(), s.Limits); err != nil {
		return nil, err
	}
	if r.saves, err = newSavable(k, snapshot.RAM, root); err != nil {
		return nil, err
	}
	m := k.machine(machineName(r.d.Owner, r.ID), root)
	m.Spare = r.saves.devices
	if s.Network == sandbar.NetworkOutbound {
		if m.Network, err = r.attachNetwork(s.Egress); err != nil {
			return nil, err
		}
		defer m.Network.Close()
	}
	if r.vm, err = r.d.monitor.Restore(ctx, r, m, snapshot); err != nil {
		r.vm = nil // and not an interface of a nil pointer
		return nil, err
	}
	if r.Group != nil {
		if now, err := r.Group.Stats(); err == nil {
			r.Baseline = now.MemoryCurrent
		}
	}
	o.Destroy, o.Usage, o.Use = r.Destroy, r.Usage(), r.Use()
	if r.link != nil {
		o.Restrict = r.link.Restrict
	}
	o.Enforced, o.UsageOnly, o.Restored, o.Blocks = r.d.Facts.Enforced, true, true, true
	return client.New(ctx, r.vm.Agent(), o)
}

// renewal returns what no other machine of the snapshot has.
func renewal(machineID string) (wire.Renew, error) {
	own := wire.Renew{Hostname: "sandbar", MachineID: machineID}
	if _, err := rand.Read(own.Seed[:]); err != nil {
		return own, sandbar.Errorf(sandbar.Internal, "making a seed: %w", err)
	}
	return own, nil
}

// limits returns the Setup that gives a restored machine the environment and the limits of a
// sandbox, nil if it has them.
func limits(k kind, s sandbar.Spec) *wire.Setup {
	setup := &wire.Setup{Env: k.environment(s.Env)}
	changed := boundsOf(k.machineMemory(), s.Limits).change(k.bounds, setup)
	if s.Network == sandbar.NetworkOutbound {
		setup.Interface = egress.Interface()
		setup.Capabilities = policy.NetworkCapabilities()
	}
	if changed || len(s.Env) > 0 || s.Network == sandbar.NetworkOutbound {
		return setup
	}
	return nil
}

// sandbox is a machine.
type sandbox struct {
	*client.Sandbox
	r      *resources
	rests  bool
	warmUp []string // a command that Rest runs first, nil for none
}

var (
	_ driver.Sandbox       = (*sandbox)(nil)
	_ driver.CurrentMemory = (*sandbox)(nil)
)

// CurrentMemory returns the memory that the guest uses, in bytes, as the guest reports it.
func (s *sandbox) CurrentMemory(ctx context.Context) (int64, error) { return s.Usage(ctx) }

// Measure returns the guest's memory, and the processor time of the whole machine.
func (s *sandbox) Measure(ctx context.Context) (driver.Use, error) {
	u, err := s.Sandbox.Measure(ctx)
	if err == nil {
		u = driver.Use{CPUTime: u.CPUTime}
		u.Memory, err = s.Usage(ctx)
	}
	return u, err
}
