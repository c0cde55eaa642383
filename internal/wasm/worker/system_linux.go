package worker

import "syscall"

// executable returns the path of this program for an exec. /proc/self/exe stays valid if the file
// is replaced (proc(5)).
func executable() (string, error) { return "/proc/self/exe", nil }

// childAttr makes the kernel kill a runner when the worker dies, in case neither reads its input
// (PR_SET_PDEATHSIG, prctl(2)).
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
