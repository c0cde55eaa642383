// Command guestinit is process 1 of the guests of package qemu. It makes a root directory from the
// host's shared directories, mounts the kernel's file systems and the cgroups, runs the commands of
// its plan and powers the machine off.
//
// Invariants: each command's output and end are reported, no command outlives its timeout, and the
// machine powers off in all cases.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu/guestplan"
)

// runnerArg starts this program as the runner of the commands, a child of process 1: process 1 must
// reap all orphans, which would interfere with os/exec in the same process.
const runnerArg = "run-commands"

func main() {
	if len(os.Args) > 1 && os.Args[1] == runnerArg {
		if err := runner(); err != nil {
			fmt.Fprintln(os.Stderr, "guestinit:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guestinit is process 1 of a test guest and nothing else")
		os.Exit(2)
	}
	if err := initialize(); err != nil {
		fmt.Fprintln(os.Stderr, "guestinit:", err)
	}
	unix.Sync()
	// The host runs QEMU with -no-reboot, so a reboot ends QEMU.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// initialize sets up the machine, starts the runner, and reaps children until the runner exits.
func initialize() error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	say("loading modules")
	if err := loadModules(plan.Modules); err != nil {
		return err
	}
	say("making the root directory")
	if err := makeRoot(plan); err != nil {
		return err
	}
	if err := mountCgroups(plan.Cgroups); err != nil {
		return err
	}
	if err := networkUp(); err != nil {
		return err
	}
	say("running the commands")
	p, err := os.StartProcess("/init", []string{"/init", runnerArg}, &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == p.Pid || err == unix.ECHILD {
			return nil
		}
	}
}

// say prints to the console, whose end is part of the error if the guest fails.
func say(step string) { fmt.Fprintln(os.Stderr, "guestinit:", step) }

func readPlan() (guestplan.Plan, error) {
	var plan guestplan.Plan
	b, err := os.ReadFile(guestplan.PlanPath)
	if err == nil {
		err = json.Unmarshal(b, &plan)
	}
	return plan, err
}

func loadModules(names []string) error {
	for _, name := range names {
		f, err := os.Open(filepath.Join(guestplan.ModuleDir, name+".ko"))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// mount creates the directory and mounts a file system there.
func mount(source, dir, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, dir, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, dir, err)
	}
	return nil
}

// makeRoot builds the root directory on a tmpfs and switches to it: pivot_root(2), which sandboxes
// call, fails in the initial ramfs.
func makeRoot(plan guestplan.Plan) error {
	const root = "/newroot"
	if err := mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, l := range plan.Links {
		if err := os.Symlink(l.Target, root+l.Name); err != nil {
			return err
		}
	}
	for _, s := range plan.Shares {
		if err := mount(s.Tag, root+s.Dir, "9p", unix.MS_RDONLY|unix.MS_NODEV,
			"trans=virtio,version=9p2000.L,cache=loose,msize=262144"); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		kind, dir, data string
		flags           uintptr
	}{
		{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"devtmpfs", "/dev", "mode=755", unix.MS_NOSUID},
		{"devpts", "/dev/pts", "mode=620,ptmxmode=666", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/run", "mode=755", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := mount(step.kind, root+step.dir, step.kind, step.flags, step.data); err != nil {
			return err
		}
	}
	for _, f := range []string{"/init", guestplan.PlanPath} {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(root+f, b, 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(root+"/root", 0o700); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(root, "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

const cgroupDir = "/sys/fs/cgroup"

func mountCgroups(layout guestplan.Layout) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if layout == guestplan.V2 {
		return mount("cgroup2", cgroupDir, "cgroup2", flags, "nsdelegate,memory_recursiveprot")
	}
	if err := mount("tmpfs", cgroupDir, "tmpfs", flags, "mode=755"); err != nil {
		return err
	}
	for _, controllers := range []string{"cpu,cpuacct", "memory", "pids", "freezer"} {
		if err := mount("cgroup", filepath.Join(cgroupDir, controllers), "cgroup", flags, controllers); err != nil {
			return err
		}
	}
	return nil
}

// networkUp makes the loopback device usable and gives it a second address, for tests that need one
// besides 127.0.0.1: the guest has no other network device. Every user can then open the TUN
// driver's file, as on a machine with udev.
func networkUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if ifr, err = unix.NewIfreq("lo:0"); err != nil {
		return err
	}
	if err := ifr.SetInet4Addr([]byte{10, 0, 2, 15}); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr); err != nil {
		return fmt.Errorf("add an address to lo: %w", err)
	}
	if err := os.Chmod("/dev/net/tun", 0o666); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// runner runs the commands and sends Messages over the port.
func runner() error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	r := &reporter{w: port}
	go func() {
		for range time.Tick(guestplan.Beat) {
			r.send(guestplan.Message{Command: -1})
		}
	}()
	for i, c := range plan.Commands {
		end := run(i, c, r)
		r.send(guestplan.Message{Command: i, End: &end})
	}
	r.send(guestplan.Message{Command: -1, Done: true})
	return r.err
}

// openPort finds the port by its name. It polls: the device appears shortly after its driver is
// loaded.
func openPort() (*os.File, error) {
	for range 500 {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err == nil && strings.TrimSpace(string(b)) == guestplan.Port {
				return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(n))), os.O_RDWR, 0)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("no port %s", guestplan.Port)
}

// reporter writes messages, one per line.
type reporter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (r *reporter) send(m guestplan.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := json.Marshal(m)
	if err == nil {
		_, err = r.w.Write(append(b, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// output reports what one command writes.
type output struct {
	command int
	r       *reporter
}

func (o output) Write(p []byte) (int, error) {
	o.r.send(guestplan.Message{Command: o.command, Output: p})
	return len(p), nil
}

// unkillable bounds the time until a killed process exits.
const unkillable = 15 * time.Second

// stack returns the kernel stack of a process.
func stack(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stack", pid))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func run(i int, c guestplan.Command, r *reporter) guestplan.End {
	fail := func(err error) guestplan.End { return guestplan.End{ExitCode: -1, Err: err.Error()} }
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp"}
	}
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/tmp"
	}
	cmd.Stdout = output{i, r}
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.UID != 0 || c.GID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID}
	}
	if c.Cgroup != "" {
		dir, err := makeCgroup(c)
		if err != nil {
			return fail(err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	limit := c.Timeout
	if limit <= 0 {
		limit = time.Minute
	}
	expired := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		close(expired)
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	})
	ended := make(chan struct{})
	go func() {
		cmd.Wait() // its error is the state, which is read below
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(limit + unkillable):
		return fail(fmt.Errorf("it cannot be killed: %s", stack(cmd.Process.Pid)))
	}
	end := guestplan.End{ExitCode: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		end.Signal = int(ws.Signal())
	}
	if !timer.Stop() {
		<-expired
		end.TimedOut = true
	}
	return end
}

// makeCgroup creates the command's cgroup like a service manager: it enables every controller in
// all cgroups above, and delegates the cgroup if the plan says so. It also calls keepQuota, which
// needs the controllers.
func makeCgroup(c guestplan.Command) (*os.File, error) {
	dir := cgroupDir
	for _, name := range strings.Split(strings.Trim(c.Cgroup, "/"), "/") {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		for _, ctl := range strings.Fields(string(b)) {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+ctl), 0); err != nil {
				return nil, err
			}
		}
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return nil, err
		}
	}
	if err := keepQuota(); err != nil {
		return nil, err
	}
	if c.Delegate {
		if err := giveAway(dir, int(c.UID), int(c.GID)); err != nil {
			return nil, err
		}
	}
	return os.Open(dir)
}

// keepQuota keeps an empty cgroup with a limit of processor time. The kernel patches the code of
// its scheduler when the machine's first such limit is set and when the last one is removed. While
// it does, an emulated processor may stop at a breakpoint that the kernel has already removed, and
// the guest panics: reported for QEMU 8.0, and probably seen with 7.2.
func keepQuota() error {
	dir := filepath.Join(cgroupDir, "quota")
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cpu.max"), []byte("100000 100000"), 0)
}

func giveAway(dir string, uid, gid int) error {
	b, err := os.ReadFile("/sys/kernel/cgroup/delegate")
	if err != nil {
		return err
	}
	for _, name := range append(strings.Fields(string(b)), ".") {
		if err := os.Chown(filepath.Join(dir, name), uid, gid); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
