// Package qemu boots a Linux guest and runs programs in it, for tests that need another
// kernel configuration than this host's, mainly another layout of cgroups.
//
// Each Run builds the guest from the kernel of scripts/qemu-kernel.sh, an initial file system with
// one static program (guestinit), and this host's /usr, /bin, /lib* and /etc, shared read-only, so
// that the guest has the host's interpreters. The processor is emulated (QEMU's TCG) and needs no
// privilege; it is about ten times slower than the host and boots in about six seconds.
//
// A test calls testenv.Need(t, testenv.QEMU) first.
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

	"github.com/sandbar-dev/sandbar/internal/linux/cpio"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu/guestplan"
)

// Guest describes the guest and its commands.
type Guest struct {
	// Kernel is the path of the kernel, beside its modules. Default: testenv.QEMUKernel().
	Kernel string
	// Cgroups is the layout of cgroups. Default: guestplan.V2.
	Cgroups guestplan.Layout
	// Shares maps absolute directories of the guest to directories of the host, all read-only.
	Shares map[string]string
	// Commands run one after another, even if one fails.
	Commands []guestplan.Command
	// Memory is in MiB. Default: 1024.
	Memory int
	// Output receives the output of the commands as it is written. Default: discarded.
	Output io.Writer
}

// Result is the result of one command.
type Result struct {
	guestplan.End
	// Output is the command's stdout and stderr together.
	Output string
}

// Err returns nil for exit code 0, else an error that says how the command ended.
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

// On a busy host an emulated machine can, rarely, hang for good, and its clock with it, so
// that no timeout inside the guest expires. Run then kills it and boots another.
const (
	// silence is the time without a message, booting included, after which a machine counts
	// as hung.
	silence = 2 * time.Minute
	// machines is the maximum number of boots.
	machines = 3
)

// errStill is the error of a hung machine.
var errStill = fmt.Errorf("no message for %v", silence)

// Run boots the guest, runs the commands and returns a Result for each, in order. An error means
// that the guest itself failed; it contains the end of the guest's console. If the machine hangs,
// Run runs all commands again in a new one. When ctx ends, Run kills the guest.
func Run(ctx context.Context, g Guest) ([]Result, error) {
	if g.Kernel == "" {
		g.Kernel = testenv.QEMUKernel()
	}
	for n := 1; ; n++ {
		results, err := g.run(ctx)
		if n == machines || !errors.Is(err, errStill) {
			return results, err
		}
	}
}

// run is Run with one machine.
func (g Guest) run(ctx context.Context) ([]Result, error) {
	// The kernel kills QEMU when the thread that started it exits (see attr).
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
	if err := makeInitrd(ctx, initrd, g.Kernel, g.plan(shares, links)); err != nil {
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
	// At end of file on its stdin, QEMU reports the port as closed.
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

// systemDirs returns the guest's user space: the host's system directories, and symbolic
// links such as /bin -> usr/bin.
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

// args returns QEMU's arguments. Messages come over a virtual serial port to QEMU's
// standard output; the console is for failures only. The machine is q35 because its clocks
// (HPET, PM timer) let the kernel calibrate on a busy host; QEMU's microvm boots a second
// faster, but on a busy host often fails to boot. There is one processor, because a
// guest with two crashes or hangs in QEMU 7.2 when its kernel patches code that the other one
// executes, as it does when the first group gets a limit of processor time.
func (g Guest) args(initrd, console string, shares []share) []string {
	memory := g.Memory
	if memory == 0 {
		memory = 1024
	}
	args := []string{
		"-M", "q35,accel=tcg,usb=off,sata=off,smbus=off,vmport=off", "-cpu", "max",
		"-m", strconv.Itoa(memory), "-smp", "1",
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", g.Kernel, "-initrd", initrd,
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

// collect reads messages until the last one, and calls heard for each.
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
			return results, errors.New("the guest stopped before it had run all commands")
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
			return results, fmt.Errorf("a message names command %d of %d", m.Command, len(results))
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

// makeInitrd writes the initial file system: init, its plan, modules of the kernel.
func makeInitrd(ctx context.Context, file, kernel string, plan guestplan.Plan) error {
	modules := filepath.Join(filepath.Dir(kernel), "modules")
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
	// The kernel opens /dev/console as the standard descriptors of process 1.
	a.Dir("dev")
	if err := a.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// buildInit builds guestinit and returns the binary.
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
