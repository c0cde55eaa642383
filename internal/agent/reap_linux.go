package agent

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// reap collects every exited child: programs and the orphans that PID 1 inherits.
//
// While there are children it blocks in wait4(2) and SIGCHLD has its default action: handling the
// signal would wake two more threads per exit. While there are none, a process that the host puts
// into the sandbox may still leave an orphan, and SIGCHLD reports it.
func (a *agent) reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	told := signalAction(unix.SIGCHLD)
	for {
		_ = told.set(unix.SIGCHLD)
		if a.collect(unix.WNOHANG) { // children that exited before the handler was set
			select {
			case <-signals:
			case <-a.childStarted:
			}
		}
		_ = defaultAction.set(unix.SIGCHLD)
		a.collect(0)
	}
}

// collect collects exited children. Without WNOHANG it returns when there are no children, with it
// when none has exited. It reports whether there are none.
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

// notifyReaper tells the reaper that there is a child.
func (a *agent) notifyReaper() {
	select {
	case a.childStarted <- struct{}{}:
	default:
	}
}
