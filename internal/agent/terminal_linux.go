package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Device numbers of the master and of the slaves (Documentation/admin-guide/devices.txt).
const (
	ptmxMajor, ptmxMinor = 5, 2
	slaveMajor           = 136
)

// newTerminal opens a pseudoterminal of the sandbox (pty(7)) and returns the program's end three
// times. It runs on the launcher's thread.
func (a *agent) newTerminal(id uint32, size wire.TerminalSize) (*streams, []int, error) {
	if a.separateUser { // who opens the master owns the slave (devpts_pty_new in fs/devpts/inode.c)
		// gVisor has no file system ids: there the slave is the agent's, and the program can use it,
		// and open it as /dev/tty.
		uid, gid := unix.Geteuid(), unix.Getegid()
		_ = setFileUser(a.uid, a.gid)
		defer setFileUser(uint32(uid), uint32(gid))
	}
	master, err := openDevice("/dev/ptmx", unix.O_NONBLOCK, ptmxMajor, ptmxMinor)
	if err != nil {
		return nil, nil, err
	}
	slave, err := openSlave(master, size)
	theirs := []int{slave}
	for err == nil && len(theirs) < 3 {
		var fd int
		if fd, err = unix.FcntlInt(uintptr(slave), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			theirs = append(theirs, fd)
		}
	}
	if err != nil {
		closeAll(theirs)
		unix.Close(master)
		return nil, nil, err
	}
	f := os.NewFile(uintptr(master), "terminal")
	s := newStreams(a.conn, id, f, f)
	s.terminal = true
	return s, theirs, nil
}

// openDevice opens a terminal device. A program may have put something else in its place.
func openDevice(path string, flags uint64, major, minor uint32) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(major, minor)) {
		err = unix.ENXIO
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openSlave sets the size of a terminal and opens its slave; -1 on an error.
func openSlave(master int, size wire.TerminalSize) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	if err := resize(master, size); err != nil {
		return -1, err
	}
	if slave, err := terminalPeer(master); err == nil {
		return slave, nil
	}
	// gVisor has no TIOCGPTPEER.
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return openDevice("/dev/pts/"+strconv.Itoa(n), 0, slaveMajor, uint32(n))
}

func resize(master int, size wire.TerminalSize) error {
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}

// onResize changes the size of a program's terminal. The kernel sends SIGWINCH to the foreground
// process group.
func (a *agent) onResize(f wire.Frame) error {
	var size wire.TerminalSize
	if err := size.Decode(f.Payload); err != nil || size.Rows == 0 {
		return unix.EPROTO
	}
	a.chanMu.Lock()
	s := a.channels[f.ID]
	a.chanMu.Unlock()
	if s == nil || !s.terminal { // the program has ended
		return nil
	}
	if c, err := s.in.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = resize(int(fd), size) })
	}
	return nil
}
