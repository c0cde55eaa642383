package agent

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// An interpreter that opens its program's file first can be started before the file exists. The
// path is at first a named pipe without a writer: open(2) blocks (fifo(7)). Release renames the
// file over the pipe and sends SIGSTOP and SIGCONT. They cancel each other, but interrupt open(2),
// which the kernel restarts with the same path (signal(7)): the same call opens the file.
//
// Release does not depend on how far the interpreter has come. If it opens the path later, it finds
// the file; if it is blocked in another call, the signals have no effect.

// fsBlock makes the pipe, and beside it the file that Release renames over it.
func (a *agent) fsBlock(r *wire.FSRequest) ([]byte, error) {
	h, err := a.newPending(&wire.FSRequest{Path: r.Path, Mode: r.Mode})
	if err != nil {
		return nil, err
	}
	if err := unix.Mknodat(h.dir, h.name, unix.S_IFIFO|0o600, 0); err != nil {
		h.discard()
		return nil, err
	}
	h.hasFIFO = true
	number, err := a.addHandle(h)
	return wire.AppendHandle(nil, number), err
}

// removeFIFO removes the pipe, if it still has its name.
func (h *handle) removeFIFO() {
	if !h.hasFIFO {
		return
	}
	if st, err := lstat(h.dir, h.name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		unix.Unlinkat(h.dir, h.name, 0)
	}
}

// running is the program of a Start, nil if it has ended.
func (a *agent) running(id uint32) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

// readerBecomesUser gives the frame-reader thread the sandbox's user for file access, permanently,
// because Release writes a file there. Unlike a worker the thread is in no Landlock domain. It
// needs none: a worker has opened the directory and checked the names.
func (a *agent) readerBecomesUser() error {
	if !a.separateUser || a.wholeMachine || a.readerIsUser {
		return nil
	}
	runtime.LockOSThread() // never unlocked
	a.readerIsUser = true
	if err := setFileUser(a.uid, a.gid); err != nil {
		return err
	}
	// A change of credentials resets the parent-death signal of the first thread and the
	// dumpable attribute (prctl(2)).
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// onRelease unblocks a program. It runs on the frame-reader thread: that saves waking a worker, and
// the thread may signal programs.
func (a *agent) onRelease(f wire.Frame) error {
	var r wire.Release
	if err := r.Decode(f.Payload); err != nil || !a.ready {
		return unix.EPROTO
	}
	if err := a.release(&r); err != nil {
		a.reply(f.ID, wire.FailFile, err, "", nil)
		return nil
	}
	a.reply(f.ID, wire.OK, nil, "", nil)
	return nil
}

// release writes the file, puts it in the place of the pipe and interrupts the program.
func (a *agent) release(r *wire.Release) error {
	if a.running(r.Program) == nil {
		return unix.ESRCH
	}
	h, err := a.takeHandle(r.Handle)
	if err != nil {
		return err
	}
	defer h.discard()
	if !h.hasFIFO {
		return unix.EINVAL
	}
	if err := writeAll(h.fd, r.Bytes); err != nil {
		return err
	}
	if err := h.commit(); err != nil {
		return err
	}
	a.restartSyscall(r.Program)
	return nil
}

// restartSyscall makes the kernel restart the system call that a program is blocked in.
func (a *agent) restartSyscall(id uint32) {
	a.mu.Lock() // the reaper needs the lock to free the process id
	defer a.mu.Unlock()
	if p := a.byID[id]; p != nil {
		_ = unix.Kill(p.pid, unix.SIGSTOP)
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}
