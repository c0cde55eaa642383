//go:build !amd64 && !arm64

package interp

import "golang.org/x/sys/unix"

// Start always returns ENOSYS: there is no routine for this processor.
func Start(Process) (pid, pidfd int, err error) { return 0, -1, unix.ENOSYS }
