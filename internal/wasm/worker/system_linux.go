package worker

import "syscall"

// executable names this program, for an exec: also where the file has been
// replaced since this process was started.
func executable() (string, error) { return "/proc/self/exe", nil }

// childAttr has a runner end with this process, should both of them be too busy
// to see the end of their input.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
