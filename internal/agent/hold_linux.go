package agent

import (
	"bytes"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A program that begins by opening a file can be started before there is anything
// to put into it. At first the file's name is that of a named pipe, which nobody
// ever opens for writing: whoever opens it to read waits in the kernel. Then the
// file takes the name, and a signal that the process never sees (a stop, taken back
// at once) has the kernel begin the interrupted open anew, from the name. So what is
// opened is the file, in the very call that was made; of the pipe nothing is left.
//
// A program that has not come to the open yet, or waits for something else, is none
// the wiser: it finds the file when it comes.

// fsHold makes the pipe, and beside it the file that will take its name.
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

// dropPipe removes the pipe, if it still has its name.
func (h *handle) removeFIFO() {
	if !h.hasFIFO {
		return
	}
	if st, err := lstat(h.dir, h.name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		unix.Unlinkat(h.dir, h.name, 0)
	}
}

const (
	// heldWithin is how long a program may take until it waits.
	blockTimeout = 20 * time.Second
	// heldPause is the time between two looks at it. An interpreter needs a
	// millisecond or more.
	blockPollInterval = 300 * time.Microsecond
)

// fsHeld returns when a program waits.
func (a *agent) fsHeld(id uint32) error {
	for end := time.Now().Add(blockTimeout); time.Now().Before(end); {
		p := a.running(id)
		if p == nil {
			return unix.ESRCH
		}
		// Between the two it may have ended and its number be another's, which
		// shows at the next look, and in the worst case as a program that goes on
		// before it has waited.
		stat, err := readVisibleProc(p.pid, "stat")
		if err != nil {
			return unix.ESRCH
		}
		if isSleeping(stat) {
			return nil
		}
		pause := unix.NsecToTimespec(int64(blockPollInterval))
		_ = unix.Nanosleep(&pause, nil) // this thread has nothing else to do
	}
	return unix.ETIMEDOUT
}

// sleeps tells from /proc/PID/stat whether a process waits, and not for a disk.
func isSleeping(stat []byte) bool {
	// The name, which is before the state, may have anything in it.
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return ok && len(after) > 0 && after[0] == 'S'
}

// running is the program of a Start, nil if it has ended.
func (a *agent) running(id uint32) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

// readAsUser makes the thread that reads frames reach files as the sandbox's user, for
// good: it will release what is held. It is in no Landlock domain, unlike a worker, and
// needs none for that: which directory and which names it works on was found by a worker.
func (a *agent) readerBecomesUser() error {
	if !a.separateUser || a.wholeMachine || a.readerIsUser {
		return nil
	}
	runtime.LockOSThread() // never unlocked
	a.readerIsUser = true
	if err := setFileUser(a.uid, a.gid); err != nil {
		return err
	}
	// With other credentials the kernel forgets what the spawner has given an agent,
	// to end with it, if this is the first thread, and what seal has done.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// fsRelease lets a program go on. The file appears with the request's bytes, unless
// there is no handle: then it is there already. It is called by who reads frames,
// so that no worker has to wake up for it, nor somebody who may signal programs.
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

// awake has the kernel begin anew what a program waits in.
func (a *agent) restartSyscall(id uint32) {
	a.mu.Lock() // until then the number is not given to another
	defer a.mu.Unlock()
	if p := a.byID[id]; p != nil {
		// The second takes back the first, if that has not stopped the process yet;
		// the call is interrupted all the same.
		_ = unix.Kill(p.pid, unix.SIGSTOP)
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}
