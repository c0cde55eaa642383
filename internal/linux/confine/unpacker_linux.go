package confine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// unpackerFiles is RLIMIT_NOFILE of the unpacker: it keeps some paths of nested directories open.
const unpackerFiles = 1024

// Unpacker confines the process that unpacks images: it reads and writes one directory, starts no
// process, creates no socket, and has no capability, even as root. memory is the bound of its own
// memory and file that of each file it writes, in bytes. It closes descriptors other than the
// standard ones unless they are close-on-exec: those without the flag were leaked by the process
// that started the daemon.
//
// Landlock is left out on kernels without it, and on those before 5.19, whose ABI 1 cannot allow a
// rename between directories. A kernel without seccomp is an error. In a binary with cgo only the
// limits are set, as in Worker.
func Unpacker(dir string, memory, file int64) error {
	if err := closeInherited(); err != nil {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	size := map[int]uint64{unix.RLIMIT_CORE: 1, unix.RLIMIT_FSIZE: uint64(file), unix.RLIMIT_NOFILE: unpackerFiles}
	if err := lowerLimits(size); err != nil {
		return err
	}
	if err := LimitData(memory); err != nil {
		return err
	}
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if ok, err := setNoNewPrivs(); !ok {
		return err
	}
	if landlockVersion() >= abiRefer {
		l := policy.UnpackLandlock(dir)
		if err := landlock(&l); err != nil {
			return err
		}
	}
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming undumpable: %w", err)
	}
	program, err := policy.Compile(runtime.GOARCH, policy.UnpackRules(uint32(unix.Getpid())))
	if err != nil {
		return err
	}
	if err := installFilter(program); err != nil {
		return fmt.Errorf("installing the system-call filter: %w", err)
	}
	return nil
}

// closeInherited closes the descriptors that are not close-on-exec.
func closeInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
