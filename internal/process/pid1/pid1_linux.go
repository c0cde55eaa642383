package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main returns unless this is the first process. There it starts the same program
// again, as its child, passes signals on to that, waits for all that become its
// children, and ends with the child's exit code; 128 and the signal's number if a
// signal ended it.
func Main() {
	if os.Getpid() != 1 {
		return
	}
	os.Exit(main())
}

// passed are the signals that are passed on.
var forwarded = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}

func main() int {
	signals := make(chan os.Signal, 16) // from before there is a child, so that none is lost
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	child, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbar: starting itself as a child of the first process:", err, "(start it below an init, such as docker run --init)")
		return 1
	}
	go func() {
		for s := range signals {
			// Its number names no other process before it has been waited for, and
			// then this process ends.
			_ = unix.Kill(child, s.(syscall.Signal))
		}
	}()
	return reap(child)
}

// start starts the child, in a group of its own, which has the terminal if there is
// one: a key that sends a signal must not send it twice.
func start() (pid int, err error) {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	return syscall.ForkExec("/proc/self/exe", os.Args, attr)
}

// reap waits for every child and returns the exit code of one.
func reap(child int) int {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fmt.Fprintln(os.Stderr, "sandbar: waiting for children:", err)
			return 1
		case pid == child && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child && status.Exited():
			return status.ExitStatus()
		}
	}
}
