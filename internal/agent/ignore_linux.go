//go:build amd64 || arm64

package agent

// handlers returns the addresses of two signal handlers, of which one does nothing and the other
// ends the process if the kernel has sent the signal, because of a fault. They return to restorer;
// 0: the kernel has its own.
func handlers() (ignore, unlessFault, restorer uintptr)
