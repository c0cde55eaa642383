// Package qemu boots a Linux guest and runs programs in it, for tests of what
// this host's kernel is not set up for: another layout of control groups above
// all.
//
// The guest is built from nothing for each Run: the kernel that
// scripts/qemu-kernel.sh left in the cache, an initial file system with one
// static program (guestinit), and this host's own /usr, /bin, /lib* and /etc,
// shared read-only, so that the interpreters of the host are there. Its
// processor is emulated (qemu's TCG) and needs no privilege; it is some ten
// times slower than the host and boots in about six seconds.
//
// A test that uses it says testenv.Need(t, testenv.QEMU) first.
package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu/guestplan"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/cpio"
)

// Guest says what is booted and run.
type Guest struct {
	// Cgroups is the layout of control groups. Default: guestplan.V2.
	Cgroups guestplan.Layout
	// Shares maps absolute directories of the guest to directories of the
	// host, all read-only.
	Shares map[string]string
	// Commands run one after another, whatever the ones before did.
	Commands []guestplan.Command
	// Memory is in MiB. Default: 1024.
	Memory int
	// CPUs is the number of processors. Default: 2.
	CPUs int
	// Output takes what the commands write, as it comes. Default: nowhere.
	Output io.Writer
}

// Result is what came of one command.
type Result struct {
	guestplan.End
	// Output is what it wrote, both streams together.
	Output string
}

// Err returns nil when the command exited 0, else how it ended.
func (r Result) Err() error {
	switch {
	case r.End.Err != "":
		return errors.New("did not start: " + r.End.Err)
	case r.TimedOut:
		return errors.New("ran out of time")
	case r.Signal != 0:
		return fmt.Errorf("killed by signal %d", r.Signal)
	case r.ExitCode != 0:
		return fmt.Errorf("exit code %d", r.ExitCode)
	}
	return nil
}

// An emulated machine can stand still for good, its clock with it, on a host
// that is busy: seldom, but so that nothing in it can tell. Such a machine is
// switched off and another is booted.
const (
	// silence is how long a machine may say nothing, booting included.
	silence = 2 * time.Minute
	// machines is how many are tried.
	machines = 3
)

// errStill is the error of a machine that stands still.
var errStill = fmt.Errorf("it has said nothing for %v", silence)

// Run boots the guest, runs the commands and returns a Result for each, in
// order. An error means that the guest itself failed; it has the end of the
// guest's console. ctx bounds everything; when it ends the guest is killed.
// Should the machine stand still, everything is run again in a new one.
func Run(ctx context.Context, g Guest) ([]Result, error) {
	for n := 1; ; n++ {
		results, err := g.run(ctx)
		if n == machines || !errors.Is(err, errStill) {
			return results, err
		}
	}
}

// run is Run with one machine.
func (g Guest) run(ctx context.Context) ([]Result, error) {
	// The kernel ends the machine with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir, err := os.MkdirTemp("", "sandbar-qemu-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	shares, links := systemDirs()
	for to, from := range g.Shares {
		shares = append(shares, share{guest: to, host: from})
	}
	slices.SortStableFunc(shares, func(a, b share) int { return strings.Compare(a.guest, b.guest) })
	initrd, console := filepath.Join(dir, "initrd"), filepath.Join(dir, "console")
	if err := makeInitrd(ctx, initrd, g.plan(shares, links)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, testenv.QEMUProgram(), g.args(initrd, console, shares)...)
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = attr()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// qemu takes the end of its input for a port that nobody listens at.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var still atomic.Bool
	watch := time.AfterFunc(silence, func() {
		still.Store(true)
		cmd.Process.Kill()
	})
	results, err := g.collect(out, func() {
		if watch.Stop() {
			watch.Reset(silence)
		}
	})
	watch.Stop()
	if err != nil {
		cmd.Process.Kill()
	}
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		if still.Load() {
			err = errStill
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return results, fmt.Errorf("guest: %w\nqemu: %s\nconsole: %s", err, tail(stderr.Bytes()), tail(readFile(console)))
	}
	return results, nil
}

// share is a directory of the host in the guest.
type share struct{ guest, host string }

func tag(i int) string { return "share" + strconv.Itoa(i) }

// systemDirs returns what makes the guest's user space: the host's directories
// and its symbolic links to them, such as /bin -> usr/bin.
func systemDirs() (shares []share, links []guestplan.Link) {
	for _, dir := range []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		st, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if target, err := os.Readlink(dir); err == nil {
			links = append(links, guestplan.Link{Name: dir, Target: target})
		} else if st.IsDir() {
			shares = append(shares, share{guest: dir, host: dir})
		}
	}
	return shares, links
}

func (g Guest) plan(shares []share, links []guestplan.Link) guestplan.Plan {
	p := guestplan.Plan{Cgroups: g.Cgroups, Links: links, Commands: g.Commands}
	if p.Cgroups == "" {
		p.Cgroups = guestplan.V2
	}
	for i, s := range shares {
		p.Shares = append(p.Shares, guestplan.Share{Tag: tag(i), Dir: s.guest})
	}
	return p
}

// args is qemu's command line. The commands' messages come out of its standard
// output, over a virtual serial port; the console is for failures only. The
// machine is q35 because it has the clocks (HPET, PM timer) that let a kernel
// calibrate itself on a busy host; qemu's microvm boots a second faster, and on
// a busy host often not at all.
func (g Guest) args(initrd, console string, shares []share) []string {
	memory, cpus := g.Memory, g.CPUs
	if memory == 0 {
		memory = 1024
	}
	if cpus == 0 {
		cpus = 2
	}
	args := []string{
		"-M", "q35,accel=tcg,usb=off,sata=off,smbus=off,vmport=off", "-cpu", "max",
		"-m", strconv.Itoa(memory), "-smp", strconv.Itoa(cpus),
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", testenv.QEMUKernel(), "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=5 reboot=t panic=-1",
		"-serial", "file:" + console,
		"-device", "virtio-serial-pci",
		"-chardev", "stdio,id=messages,signal=off",
		"-device", "virtserialport,chardev=messages,name=" + guestplan.Port,
	}
	for i, s := range shares {
		args = append(args,
			"-fsdev", fmt.Sprintf("local,id=%s,path=%s,security_model=none,readonly=on,multidevs=remap",
				tag(i), strings.ReplaceAll(s.host, ",", ",,")),
			"-device", fmt.Sprintf("virtio-9p-pci,fsdev=%s,mount_tag=%s", tag(i), tag(i)))
	}
	return args
}

// collect reads messages until the guest has told the end; heard is called for
// each.
func (g Guest) collect(r io.Reader, heard func()) ([]Result, error) {
	results := make([]Result, len(g.Commands))
	for i := range results {
		results[i].End = guestplan.End{ExitCode: -1, Err: "the guest ended first"}
	}
	outputs := make([]strings.Builder, len(g.Commands))
	defer func() {
		for i := range results {
			results[i].Output = outputs[i].String()
		}
	}()
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return results, errors.New("it went off before it had run everything")
		}
		if err != nil {
			return results, err
		}
		heard()
		var m guestplan.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return results, fmt.Errorf("not a message: %q", line)
		}
		switch {
		case m.Done:
			return results, nil
		case m.Command == -1:
			continue
		case m.Command < 0 || m.Command >= len(results):
			return results, fmt.Errorf("a message about command %d of %d", m.Command, len(results))
		case m.End != nil:
			results[m.Command].End = *m.End
		default:
			outputs[m.Command].Write(m.Output)
			if g.Output != nil {
				g.Output.Write(m.Output)
			}
		}
	}
}

// makeInitrd writes the initial file system: init, its plan, kernel modules.
func makeInitrd(ctx context.Context, file string, plan guestplan.Plan) error {
	modules := filepath.Join(filepath.Dir(testenv.QEMUKernel()), "modules")
	order, err := os.ReadFile(filepath.Join(modules, "order"))
	if err != nil {
		return err
	}
	plan.Modules = strings.Fields(string(order))
	initProgram, err := buildInit(ctx, file+".init")
	if err != nil {
		return err
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	a := cpio.NewWriter(&out)
	a.Dir("modules")
	for _, m := range plan.Modules {
		b, err := os.ReadFile(filepath.Join(modules, m+".ko"))
		if err != nil {
			return err
		}
		a.File(strings.TrimPrefix(guestplan.ModuleDir, "/")+"/"+m+".ko", b)
	}
	a.File("init", initProgram)
	a.File(strings.TrimPrefix(guestplan.PlanPath, "/"), b)
	// Process 1 opens this as its standard input, output and error.
	a.Dir("dev")
	if err := a.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// buildInit builds guestinit, which the Go build cache makes quick.
func buildInit(ctx context.Context, file string) ([]byte, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "./internal/test/testenv/qemu/guestinit")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build guestinit: %w\n%s", err, msg)
	}
	return os.ReadFile(file)
}

func readFile(name string) []byte {
	b, err := os.ReadFile(name)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// tail returns the last few lines.
func tail(b []byte) string {
	const most = 3000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return strings.TrimSpace(string(b))
}
