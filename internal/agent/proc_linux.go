package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// procfs is the root of a mounted proc file system, as a descriptor. The tree killer and the
// watchdog read all processes through one.
//
// If programs run as the agent's own user, it is a detached mount of the agent's own. The sandbox's
// /proc may have the option hidepid, which hides processes that the reader may not trace, and a
// process without capabilities may not trace one that is not dumpable. So a program could hide from
// the agent there. Since Linux 5.8 hidepid is an option of one mount (proc(5)), and the agent's own
// has none: every reader may open limits, stat, statm and status.
type procfs struct{ root int }

// mountProcfs creates the detached mount. It must run before the root is built: the kernel allows
// it only to a process with CAP_SYS_ADMIN that still sees a fully visible proc mount, the host's
// (mount_namespaces(7)).
func mountProcfs() (procfs, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return procfs{}, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "subset", "pid"); err != nil {
		return procfs{}, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return procfs{}, err
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	return procfs{root}, err
}

// openProcfs opens the /proc that programs see. If it refuses a file of a process, the caller must
// not conclude that the process does not exist.
func openProcfs() (procfs, error) {
	root, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return procfs{root}, err
}

// pids lists all processes except the agent and PID 1, in the kernel's order. After an error the
// list may be incomplete.
func (p procfs) pids() ([]string, error) {
	fd, err := unix.Openat(p.root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), "proc")
	defer d.Close()
	names, err := d.Readdirnames(-1)
	self := strconv.Itoa(os.Getpid())
	pids := names[:0]
	for _, n := range names {
		if n[0] >= '0' && n[0] <= '9' && n != "1" && n != self {
			pids = append(pids, n)
		}
	}
	return pids, err
}

// open opens the directory of a process, or one below it. The descriptor stays bound to this
// process, even after its pid is reused.
func (p procfs) open(pid string) (dir int, err error) {
	return unix.Openat(p.root, pid, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// readProc reads a file below a /proc directory into buf, which must have room for the whole file.
// After the process has been reaped, the result is empty or an error for which hasEnded is true.
func readProc(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf) // the kernel returns the whole file if it fits
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == len(buf):
			return nil, unix.E2BIG
		default:
			return buf[:n], nil
		}
	}
}

// hasEnded reports whether an error of open or readProc means that the process does not exist any
// more. Any other error leaves that open.
func hasEnded(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// readVisibleProc reads a file of a process through the sandbox's /proc, for threads in the
// programs' Landlock domain, which allows no other. The caller must treat any error as a refusal.
func readVisibleProc(pid int, name string) ([]byte, error) {
	return os.ReadFile(procDir(pid) + name)
}

// procDir returns the directory of a process in /proc, with a slash at its end.
func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/" }
