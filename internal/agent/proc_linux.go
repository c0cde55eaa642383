package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// procfs is the root of a proc file system, as a descriptor. All that the hunter
// and the watchdog read of processes they read through one.
//
// Where programs are the agent's own user it is a mount of the agent's own that is
// attached nowhere. The mount in the sandbox's tree may hide processes that a
// reader may not trace (hidepid), and the kernel lets nobody without capabilities
// trace a process that is not dumpable: a program could hide from the agent. Since
// Linux 5.8 hidepid belongs to one mount, so the agent's own hides nothing.
// limits, stat, statm and status are open to every reader there.
type procfs struct{ root int }

// mountProcfs makes the agent's own. It needs the rights over the PID namespace
// and the mount of the host's /proc in view, so it runs before the root is built.
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

// openProcfs opens the one that programs see. Who reads by it must take what it
// refuses for unknown, never for absent.
func openProcfs() (procfs, error) {
	root, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return procfs{root}, err
}

// pids lists the processes but for the agent and PID 1, in the kernel's order.
// After an error the list may lack any of them.
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

// open opens the directory of a process, or of what is below one. It means this
// process, never another that got its number.
func (p procfs) open(pid string) (dir int, err error) {
	return unix.Openat(p.root, pid, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// readProc reads a file of or below a directory of proc into buf, which must have room
// for all of it. The file of a process that has been reaped is an error for which
// hasEnded is true, or empty.
func readProc(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf) // the kernel gives all that fits at once
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

// hasEnded reports whether an error of open or readProc says that there is no such
// process any more. Every other error leaves open whether there is.
func hasEnded(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// visible reads a file of a process by the /proc that programs see, for threads in
// the programs' Landlock domain, which reaches no other. Any error is to be taken
// for a refusal.
func readVisibleProc(pid int, name string) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
}
