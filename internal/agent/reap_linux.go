package agent

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// reap collects every ended child, its own and the orphans it inherited.
//
// While there are children it waits in the kernel, and no signal tells of their end:
// handling one takes two threads more. While there
// are none, an orphan may come at any time all the same, of a process that the host
// has put into the sandbox; then the signal tells of it.
func (a *agent) reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	told := signalAction(unix.SIGCHLD)
	for {
		_ = told.set(unix.SIGCHLD)
		if a.collect(unix.WNOHANG) { // what came before the signal could tell
			select {
			case <-signals:
			case <-a.childStarted:
			}
		}
		_ = defaultAction.set(unix.SIGCHLD)
		a.collect(0)
	}
}

// collect collects what has ended until there are no children, which it reports, or
// with WNOHANG until none of them has ended.
func (a *agent) collect(options int) (childless bool) {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, options, &usage)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return true
		case pid <= 0:
			return false
		default:
			a.ended(pid, status, &usage)
		}
	}
}

// bear tells the reaper of a child.
func (a *agent) notifyReaper() {
	select {
	case a.childStarted <- struct{}{}:
	default:
	}
}
