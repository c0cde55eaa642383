package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main returns unless this process is PID 1. As PID 1 it starts the same program as its child,
// forwards signals to it, reaps all children, and exits with the child's exit code, or 128 plus the
// number of the signal that killed the child.
func Main() {
	if os.Getpid() != 1 {
		return
	}
	os.Exit(main())
}

// forwarded are the signals that are forwarded to the child.
var forwarded = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}

func main() int {
	signals := make(chan os.Signal, 16) // before the child exists, so that no signal is lost
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
			// The pid cannot be reused before the child is reaped, and then this process exits.
			_ = unix.Kill(child, s.(syscall.Signal))
		}
	}()
	return reap(child)
}

// start starts the child in a process group of its own, which becomes the terminal's foreground
// group: otherwise a key such as Ctrl-C would signal it twice.
func start() (pid int, err error) {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	return syscall.ForkExec("/proc/self/exe", os.Args, attr)
}

// reap reaps all children and returns the exit code of one.
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
