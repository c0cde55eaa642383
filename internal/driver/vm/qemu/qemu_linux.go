package qemu

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
)

// Accelerators.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// translationCache is the size of the buffer for translated instructions, in MiB.
const translationCache = 64

// QEMU is a monitor.Monitor.
type QEMU struct {
	path, version string
	accelerator   string
}

var _ monitor.Monitor = (*QEMU)(nil)

// With returns the same program with another accelerator.
func (q *QEMU) With(accelerator string) *QEMU { return &QEMU{q.path, q.version, accelerator} }

// Path is the program's path.
func (q *QEMU) Path() string { return q.path }

// Facts implements monitor.Monitor.
func (q *QEMU) Facts() monitor.Facts {
	return monitor.Facts{Build: q.version, Accelerator: q.accelerator, CPU: q.cpu()}
}

// cpu is the processor model: the host's with KVM, otherwise everything that can be emulated,
// except what makes emulation slow. Programs that find fast string instructions (ERMS) copy memory
// with them, and TCG emulates them byte by byte: without them output of a program is 2.5 times
// faster. A fifth level of page tables (LA57), and the switches around each access to a program's
// memory (SMAP) and at each change of the program (PKU), cost a third of the time of `true`.
func (q *QEMU) cpu() string {
	if q.accelerator == KVM {
		return "host"
	}
	return "max,erms=off,fsrm=off,la57=off,smap=off,pku=off"
}

// files collects the descriptors that qemu inherits.
type files []*os.File

// add returns the path of a descriptor in the process.
func (f *files) add(file *os.File) string { return "/proc/self/fd/" + strconv.Itoa(f.number(file)) }

func (f *files) number(file *os.File) int {
	*f = append(*f, file)
	return monitor.FirstFile + len(*f) - 1
}

// arguments returns the command line without kernel and migration. agent and qmp are descriptors,
// network is the backend of the port for packets.
func (q *QEMU) arguments(m monitor.Machine, ram string, clone bool, agent, qmp int, network, root, kvm string) []string {
	memory := strconv.FormatInt(m.Memory>>20, 10) + "M"
	backend := "memory-backend-file,id=m,size=" + memory + ",mem-path=" + ram
	if clone {
		backend += ",share=off,readonly=on,rom=off"
	} else {
		backend += ",share=on"
	}
	accelerator := "tcg,tb-size=" + strconv.Itoa(translationCache)
	if q.accelerator == KVM {
		accelerator = "kvm,device=" + kvm
	}
	args := []string{"qemu-system-x86_64", "-name", m.Name, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}
	for _, dir := range q.firmware() {
		args = append(args, "-L", dir)
	}
	return append(args,
		"-accel", accelerator, "-cpu", q.cpu(), "-smp", strconv.Itoa(m.Processors), "-m", memory,
		"-M", "q35,usb=off,sata=off,smbus=off,vmport=off,graphics=off,i8042=off,memory-backend=m",
		"-object", backend,
		"-chardev", "socket,id=agent,fd="+strconv.Itoa(agent),
		"-chardev", "socket,id=qmp,fd="+strconv.Itoa(qmp), "-mon", "chardev=qmp,mode=control",
		"-device", "virtio-serial-pci,disable-legacy=on", "-device", "virtserialport,chardev=agent,name="+guest.Port,
		"-chardev", network+",id=network", "-device", "virtserialport,chardev=network,name="+guest.NetworkPort,
		"-device", "vmgenid,guid=auto",
		"-blockdev", "driver=file,filename="+root+",read-only=on,node-name=root,locking=off",
		"-device", "virtio-blk-pci,drive=root,disable-legacy=on")
}

// firmware returns the directories of qemu's firmware, if qemu is not installed below /usr. It does
// not find them by itself then.
func (q *QEMU) firmware() (dirs []string) {
	prefix := filepath.Dir(filepath.Dir(q.path))
	if prefix == "/usr" || prefix == "/usr/local" {
		return nil
	}
	for _, name := range []string{"qemu", "seabios"} {
		dir := filepath.Join(prefix, "share", name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Boot implements monitor.Monitor.
func (q *QEMU) Boot(ctx context.Context, l monitor.Launcher, b monitor.Boot) (monitor.VM, error) {
	v, err := q.start(ctx, l, b.Machine, b.Snapshot, func(f *files) []string {
		return []string{"-kernel", f.add(b.Kernel), "-initrd", f.add(b.Initramfs), "-append", b.Cmdline}
	})
	if err == nil {
		err = v.explain("booting a machine", v.qmp.greet(ctx))
	}
	return v.orClose(err)
}

// Restore implements monitor.Monitor.
func (q *QEMU) Restore(ctx context.Context, l monitor.Launcher, m monitor.Machine, s monitor.Snapshot) (monitor.VM, error) {
	v, err := q.start(ctx, l, m, s, nil)
	if err == nil {
		err = v.qmp.greet(ctx, ignoreShared(), command{"migrate-incoming", map[string]string{"uri": "file:" + v.state}})
		if err == nil {
			err = v.qmp.migrated(ctx)
		}
		err = v.explain("restoring a machine", err)
	}
	return v.orClose(err)
}

// start starts qemu. kernel is nil for a machine that is restored.
func (q *QEMU) start(ctx context.Context, l monitor.Launcher, m monitor.Machine, s monitor.Snapshot, kernel func(*files) []string) (*machine, error) {
	v := &machine{dead: make(chan struct{})}
	var inherited files
	agent, theirAgent, err := socketPair()
	if err != nil {
		return v, err
	}
	v.agent = agent
	defer theirAgent.Close()
	qmp, theirQMP, err := socketPair()
	if err != nil {
		return v, err
	}
	v.qmp = newControl(qmp)
	defer theirQMP.Close()
	listen, speak, err := os.Pipe()
	if err != nil {
		return v, sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	defer speak.Close()
	v.stderr = readTail(listen, v.dead)

	agentFD, qmpFD := inherited.number(theirAgent), inherited.number(theirQMP)
	ram, root := inherited.add(s.RAM), inherited.add(m.Root)
	v.state = inherited.add(s.State)
	if m.Spare != nil {
		v.spare = inherited.add(m.Spare)
	}
	network := "null"
	if m.Network != nil {
		network = "socket,fd=" + strconv.Itoa(inherited.number(m.Network))
	}
	kvm := ""
	if q.accelerator == KVM {
		device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err != nil {
			return v, sandbar.Errorf(sandbar.Unsupported, "opening KVM: %w", err)
		}
		defer device.Close()
		kvm = "/dev/fdset/1"
		inherited = append(inherited, device)
	}
	args := q.arguments(m, ram, kernel == nil, agentFD, qmpFD, network, root, kvm)
	if kvm != "" {
		args = append(args, "-add-fd", "set=1,fd="+strconv.Itoa(monitor.FirstFile+len(inherited)-1))
	}
	if kernel != nil {
		args = append(args, kernel(&inherited)...)
	} else {
		args = append(args, "-incoming", "defer")
		if s.OfDevices {
			args = append(args, devicesFormat()...)
		}
	}
	err = l.Launch(ctx, monitor.Program{Path: q.path, Args: args, Libraries: q.firmware(), Files: inherited, Stderr: speak})
	return v, err
}

// socketPair returns a connected pair of sockets: ours, and the one that qemu inherits.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "qemu")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "qemu")
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, sandbar.Errorf(sandbar.Internal, "opening a connection to qemu: %w", err)
	}
	// Not a *net.UnixConn, over which descriptors could be passed.
	return struct{ net.Conn }{conn}, theirs, nil
}

// machine is a monitor.VM.
type machine struct {
	qmp    *control
	agent  net.Conn
	stderr *tail
	state  string // path of the state file in the process
	spare  string // path of Machine.Spare in the process
	dead   chan struct{}
}

// orClose returns the machine, or closes it after an error.
func (v *machine) orClose(err error) (monitor.VM, error) {
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// lastWordsTime bounds the wait for the last words of qemu.
const lastWordsTime = 500 * time.Millisecond

// explain returns the error of what has failed, with the last words of qemu.
func (v *machine) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	code := sandbar.Unavailable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = sandbar.Timeout
	case errors.Is(err, context.Canceled):
		code = sandbar.Canceled
	}
	if code == sandbar.Unavailable {
		select { // the last words of a process that has ended arrive after the end of its connection
		case <-v.dead:
		case <-time.After(lastWordsTime):
		}
	}
	if words := v.LastWords(); words != "" {
		doing += "; qemu's last words: " + sandbar.Quote(words, 500)
	}
	return &sandbar.Error{Code: code, Message: doing, Err: err, Fix: "run `sandbar doctor`"}
}

func (v *machine) Agent() net.Conn       { return v.agent }
func (v *machine) Dead() <-chan struct{} { return v.dead }

// Save implements monitor.VM.
func (v *machine) Save(ctx context.Context) error {
	err := v.qmp.run(ctx, ignoreShared(), command{"migrate", map[string]string{"uri": "file:" + v.state}})
	if err == nil {
		err = v.qmp.migrated(ctx)
	}
	return v.explain("saving a machine", err)
}

// LastWords implements monitor.VM.
func (v *machine) LastWords() string {
	if v.stderr == nil {
		return ""
	}
	return v.stderr.text()
}

// Close implements monitor.VM.
func (v *machine) Close() error {
	if v.agent != nil {
		v.agent.Close()
	}
	if v.qmp != nil {
		v.qmp.conn.Close()
	}
	if v.stderr != nil {
		v.stderr.close()
	}
	return nil
}

// tailSize is the number of bytes kept of qemu's error output, which an error quotes whole.
const tailSize = 480

// tail reads a pipe and keeps the last tailSize bytes.
type tail struct {
	from *os.File
	done chan struct{}
	mu   sync.Mutex
	last []byte
}

// readTail starts reading. It takes ownership of from, and closes done at the end of the pipe.
func readTail(from *os.File, done chan struct{}) *tail {
	t := &tail{from: from, done: done}
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, err := from.Read(buf)
			t.mu.Lock()
			t.last = append(t.last, buf[:n]...)
			t.last = t.last[max(0, len(t.last)-tailSize):]
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t
}

// text returns what has been read.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.last), ""))
}

// close stops the reading.
func (t *tail) close() {
	t.from.Close()
	<-t.done
}
