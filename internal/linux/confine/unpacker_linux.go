package confine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// unpackerFiles bounds the descriptors of the process that unpacks images: it
// keeps a few ways of nested directories open.
const unpackerFiles = 1024

// Unpacker confines the process that unpacks images: it writes and reads in one
// directory, starts nothing, makes no socket, and has no capability, even as
// root. memory bounds its own memory and file the size of each file it writes,
// in bytes. Descriptors beyond the standard ones stay open if they are marked to
// be closed on exec; the others come from whoever started the daemon.
//
// Landlock is left out on kernels that have none or, up to 5.18, cannot allow a
// rename from directory to directory. A kernel without filters is an error. Where the program is linked with C nothing
// but the limits is taken, as for Worker.
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
		return fmt.Errorf("shutting out debuggers: %w", err)
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

// closeInherited closes the descriptors that an exec would pass on.
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
