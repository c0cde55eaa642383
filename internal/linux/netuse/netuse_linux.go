// Package netuse finds out whether a program has made an internet socket in a network namespace. A
// BPF program, which the kernel runs whenever a process of a control group makes such a socket,
// notes it (bpf(2), BPF_CGROUP_INET_SOCK_CREATE). It works with version 2 of control groups, which
// is also there on hosts whose limits are those of version 1.
package netuse

import (
	"errors"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// mostNamespaces is the most namespaces that a Watcher watches at once.
const mostNamespaces = 1 << 16

// Watcher watches network namespaces. Its methods may be called concurrently. The kernel removes
// the program with the process that has made the Watcher.
type Watcher struct {
	marks   *ebpf.Map // from cookies of namespaces to 1: a socket was made there
	program *ebpf.Program
	link    *link.RawLink
}

// New makes a Watcher of the sockets that processes of a version 2 control group, or of groups
// below it, make. The calling process must be one of them. Unsupported: the kernel is older than
// 5.14, or the caller lacks CAP_BPF and CAP_NET_ADMIN, or a BPF program that is attached to the
// group allows no other.
func New(group string) (w *Watcher, err error) {
	w = &Watcher{}
	defer func() {
		if err != nil {
			w.Close()
			w, err = nil, sandbar.Errorf(sandbar.Unsupported, "watching for internet sockets: %w", err)
		}
	}()
	if group == "" {
		return w, errors.New("this process has no version 2 control group that it may write to")
	}
	dir, err := os.Open(group)
	if err != nil {
		return w, err
	}
	defer dir.Close()
	const noPrealloc = 1 // BPF_F_NO_PREALLOC
	if w.marks, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: mostNamespaces, Flags: noPrealloc}); err != nil {
		return w, err
	}
	if w.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSock, AttachType: ebpf.AttachCGroupInetSockCreate, License: "GPL", Instructions: w.instructions()}); err != nil {
		return w, err
	}
	if w.link, err = link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: w.program, Attach: ebpf.AttachCGroupInetSockCreate}); err != nil {
		return w, err
	}
	return w, w.try()
}

// instructions are the program: it sets the namespace's mark, if there is one, and allows the
// socket.
func (w *Watcher) instructions() asm.Instructions {
	const key = -8 // on the stack
	return asm.Instructions{
		asm.FnGetNetnsCookie.Call(),
		asm.StoreMem(asm.RFP, key, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, w.marks.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "allow"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("allow"),
		asm.Return(),
	}
}

// try makes a socket and looks whether it is seen.
func (w *Watcher) try() error {
	make := func() (cookie uint64, err error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	}
	cookie, err := make()
	if err != nil {
		return err
	}
	if err := w.Begin(cookie); err != nil {
		return err
	}
	defer w.End(cookie)
	if w.Used(cookie) {
		return errors.New("a socket is seen that nobody has made")
	}
	if _, err := make(); err != nil {
		return err
	}
	if !w.Used(cookie) {
		return errors.New("a socket is not seen")
	}
	return nil
}

// Begin begins to watch a network namespace, whose cookie is the socket option SO_NETNS_COOKIE.
func (w *Watcher) Begin(cookie uint64) error {
	if err := w.marks.Put(cookie, uint64(0)); err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "watching a network namespace: %w", err)
	}
	return nil
}

// Used reports whether a process has made an internet socket in the namespace since Begin. It
// reports true if that is not known.
func (w *Watcher) Used(cookie uint64) bool {
	var mark uint64
	return w.marks.Lookup(cookie, &mark) != nil || mark != 0
}

// End ends watching a namespace.
func (w *Watcher) End(cookie uint64) { _ = w.marks.Delete(cookie) }

// Close detaches the program.
func (w *Watcher) Close() {
	if w.link != nil {
		w.link.Close()
	}
	if w.program != nil {
		w.program.Close()
	}
	if w.marks != nil {
		w.marks.Close()
	}
}
