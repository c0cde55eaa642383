package escape

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// takeQuotas allocates one object of each kind that the kernel limits by user, as this process's
// user, and frees it.
func takeQuotas() error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("inotify instance: %w", err)
	}
	defer syscall.Close(fd)
	if _, err := syscall.InotifyAddWatch(fd, "/", syscall.IN_DELETE_SELF); err != nil {
		return fmt.Errorf("inotify watch: %w", err)
	}
	name := append([]byte("sandbar-escape-"+nonce()), 0)
	queue, _, errno := syscall.Syscall6(syscall.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), uintptr(os.O_CREATE|os.O_EXCL|os.O_RDWR), 0o600, 0, 0, 0)
	if errno == syscall.ENOSYS {
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("message queue: %w", errno)
	}
	syscall.Close(int(queue))
	if _, _, errno := syscall.Syscall(syscall.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0); errno != 0 {
		return fmt.Errorf("removing a message queue: %w", errno)
	}
	return nil
}
