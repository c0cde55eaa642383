package agent

import (
	"bytes"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A shell can start before its script exists. At first the script's path names a FIFO that has no
// writer, so the shell's open(2) blocks in the kernel (fifo(7)). Then the file is renamed over the
// FIFO, and SIGSTOP followed at once by SIGCONT interrupts the open. The kernel restarts an open
// that a stop signal interrupts (ERESTARTSYS), from the path lookup on; no handler runs, and the
// process cannot observe it. So the same open(2) call returns the file, and nothing of the FIFO is
// left.
//
// A program that has not reached the open yet, or sleeps elsewhere, is not affected: it finds the
// file when it opens the path.

// fsHold creates the FIFO, and beside it the pending file that will replace it.
func (a *agent) fsHold(r *wire.FSRequest) ([]byte, error) {
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

// removeFIFO removes the FIFO if its name still refers to one.
func (h *handle) removeFIFO() {
	if !h.hasFIFO {
		return
	}
	if st, err := lstat(h.dir, h.name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		unix.Unlinkat(h.dir, h.name, 0)
	}
}

const (
	// blockTimeout is how long a program may take until it blocks.
	blockTimeout = 20 * time.Second
	// blockPollInterval is the interval between two reads of its state. An interpreter takes a
	// millisecond or more to start.
	blockPollInterval = 300 * time.Microsecond
)

// fsHeld returns when the program of the Start id sleeps.
func (a *agent) fsHeld(id uint32) error {
	for end := time.Now().Add(blockTimeout); time.Now().Before(end); {
		p := a.running(id)
		if p == nil {
			return unix.ESRCH
		}
		// The process may have exited since, and its pid belong to another process. The next read
		// shows that. In the worst case the host releases a program that has not blocked yet, which
		// is harmless.
		stat, err := readVisibleProc(p.pid, "stat")
		if err != nil {
			return unix.ESRCH
		}
		if isSleeping(stat) {
			return nil
		}
		pause := unix.NsecToTimespec(int64(blockPollInterval))
		_ = unix.Nanosleep(&pause, nil) // a blocking sleep is fine: the worker owns this thread
	}
	return unix.ETIMEDOUT
}

// isSleeping reports whether /proc/PID/stat shows an interruptible sleep (S), which excludes disk
// waits (D).
func isSleeping(stat []byte) bool {
	// The command name before the state may contain any byte, so cut at the last parenthesis.
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return ok && len(after) > 0 && after[0] == 'S'
}

// running returns the program of the Start id, nil if it has ended.
func (a *agent) running(id uint32) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

// readerBecomesUser gives the frame-reader thread the sandbox's user for file access (setfsuid(2)),
// for good, because that thread releases blocked programs. Unlike a worker it is in no Landlock
// domain. It needs none: a worker has resolved the directory and the names that a release uses.
func (a *agent) readerBecomesUser() error {
	if !a.separateUser || a.wholeMachine || a.readerIsUser {
		return nil
	}
	runtime.LockOSThread() // never unlocked
	a.readerIsUser = true
	if err := setFileUser(a.uid, a.gid); err != nil {
		return err
	}
	// A change of credentials clears the parent-death signal that the spawner set, if this is the
	// main thread, and makes the process dumpable again (prctl(2)). Restore both.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// fsRelease lets a blocked program go on. With a handle, the pending file first gets the request's
// bytes and replaces the FIFO; without one the file exists already. The frame-reader thread runs
// it: no worker has to wake up, and unlike a worker this thread may signal programs.
func (a *agent) fsRelease(r *wire.FSRequest) error {
	if a.running(r.Size) == nil {
		return unix.ESRCH
	}
	if r.Handle != 0 {
		h, err := a.takeHandle(r.Handle)
		if err != nil {
			return err
		}
		defer h.discard()
		if !h.hasFIFO {
			return unix.EINVAL
		}
		if err := h.write(r.Bytes); err != nil {
			return err
		}
		if err := h.commit(); err != nil {
			return err
		}
	}
	a.restartSyscall(r.Size)
	return nil
}

// restartSyscall makes the kernel restart the system call in which a program sleeps.
func (a *agent) restartSyscall(id uint32) {
	a.mu.Lock() // while the lock is held the pid is not reaped, so it cannot be reused
	defer a.mu.Unlock()
	if p := a.byID[id]; p != nil {
		// SIGCONT may cancel SIGSTOP before the process has stopped; the system call is interrupted
		// all the same (signal(7)).
		_ = unix.Kill(p.pid, unix.SIGSTOP)
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}
