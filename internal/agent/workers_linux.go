package agent

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The agent's threads count towards its sandbox's process limit, and the Go runtime aborts if it
// cannot create a thread. So every thread that the agent will need exists before the first program
// runs, and a fork bomb cannot break the agent.
const (
	// fileWorkers is the number of file operations and dials that run at once.
	fileWorkers = 2
	// spareThreads is the number of threads created in advance: 1 for the launcher, one per worker,
	// and 10 for the runtime. The 10 are two that run Go code, one each for signal delivery, the
	// reaper, the watchdog and the tree killer, two blocked replies, and two in reserve.
	spareThreads = 1 + fileWorkers + 10
	// backlog is the length of the queues of the launcher and of the workers.
	backlog = 256
)

// runOnOwnThread runs f permanently on a thread of its own that is not the process's main thread.
// The main thread stands for the process when a program reads its /proc entries or signals it, so
// it must not take on the rights of programs.
func runOnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: f drops rights of this thread permanently
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		other := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another thread, while the first is locked
			close(other)
			f()
		}()
		<-other
		runtime.UnlockOSThread()
	}()
}

// startWorkers starts the threads that perform file operations and dial ports. Each has the file
// access rights of the sandbox's user and is in the programs' Landlock domain, permanently.
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

// becomeUser confines the calling thread, which must be locked to its goroutine.
func (a *agent) becomeUser() error {
	if a.wholeMachine {
		if a.capabilities == wire.AllCapabilities {
			return nil
		}
		return setCaps(a.capabilities)
	}
	if a.separateUser {
		if err := setFileUser(a.uid, a.gid); err != nil {
			// gVisor has no file system ids; the effective ids have the same effect there.
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

// setFileUser changes the user and group of the calling thread for file access only (setfsuid(2)).
// For everything else it stays the agent's, so a program of that user cannot signal it, and it can
// signal programs.
func setFileUser(uid, gid uint32) error {
	unix.Setfsgid(int(gid))
	unix.Setfsuid(int(uid))
	nowGID, gerr := unix.SetfsgidRetGid(-1) // -1 changes nothing and returns the current id
	nowUID, uerr := unix.SetfsuidRetUid(-1)
	if gerr == nil && uerr == nil && uint32(nowGID) == gid && uint32(nowUID) == uid {
		return nil
	}
	return unix.ENOSYS
}
