package agent

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The agent counts towards the limit of processes of its own sandbox, and a
// runtime that is refused a thread ends the process. So every thread the agent
// will ever need is there before the first program runs, and a fork bomb finds
// the agent complete.
const (
	// fileWorkers is how many file operations and dials run at once.
	fileWorkers = 2
	// spares is how many threads are made ahead: one for the launcher, those of
	// the workers, and what the runtime needs besides. That is two that run, and
	// one each for the delivery of signals, the reaper, the watchdog, the hunter, and
	// two replies that block; and two more than that.
	spareThreads = 1 + fileWorkers + 10
	// backlog is how many requests wait for the launcher, and for a worker.
	backlog = 256
)

// apart runs f on a thread of its own, for good, that is not the process's first: that
// one stands for the whole process where a program looks at it or signals it, and must
// not take on what a program has.
func runOnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: what f gives up there, this thread has no more
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		other := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another, while the first is held
			close(other)
			f()
		}()
		<-other
		runtime.UnlockOSThread()
	}()
}

// startWorkers starts the threads on which files are touched and ports dialled.
// Each has the rights of the sandbox's user and is in the Landlock domain of
// its programs, for good.
func (a *agent) startWorkers() (step string, err error) {
	ready := make(chan error)
	for range fileWorkers {
		runOnOwnThread(func() {
			err := a.becomeUser()
			ready <- err
			if err != nil {
				return
			}
			for job := range a.jobs {
				job()
			}
		})
	}
	for range fileWorkers {
		if e := <-ready; e != nil {
			err = e
		}
	}
	return "take the user's rights for file operations", err
}

// becomeUser confines the calling goroutine's thread, which is its own.
func (a *agent) becomeUser() error {
	if a.wholeMachine {
		return nil
	}
	if a.separateUser {
		if err := setFileUser(a.uid, a.gid); err != nil {
			// gVisor has no such ids; the thread's effective ones do the same there.
			if err := setThreadUser(a.uid, a.gid); err != nil {
				return err
			}
		}
	}
	if err := setCaps(0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if a.ruleset < 0 {
		return nil
	}
	return landlockRestrict(a.ruleset)
}

// setFileUser makes the calling thread reach files as another user, and stay
// the agent's own to all else: a program of that user cannot signal it, and it can
// signal programs.
func setFileUser(uid, gid uint32) error {
	unix.Setfsgid(int(gid))
	unix.Setfsuid(int(uid))
	nowGID, gerr := unix.SetfsgidRetGid(-1) // changes nothing, and tells
	nowUID, uerr := unix.SetfsuidRetUid(-1)
	if gerr == nil && uerr == nil && uint32(nowGID) == gid && uint32(nowUID) == uid {
		return nil
	}
	return unix.ENOSYS
}
