package agent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// openRandom opens /dev/urandom, before any program can replace the file. It returns -1 on failure,
// and then Renew fails.
func openRandom() int {
	fd, err := openAt(unix.AT_FDCWD, "/dev/urandom", unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1
	}
	return fd
}

// onRenew gives the machine its own random numbers, clock and names. It runs on the frame-reader
// goroutine, so no later request is handled before it ends.
func (a *agent) onRenew(f wire.Frame) error {
	var r wire.Renew
	if err := r.Decode(f.Payload); err != nil || !a.wholeMachine {
		return unix.EPROTO
	}
	if step, err := a.renew(&r); err != nil {
		a.reply(f.ID, wire.FailSetup, err, step, nil)
		return nil
	}
	a.reply(f.ID, wire.OK, nil, "", nil)
	return nil
}

// renew applies r. On failure it names the step.
func (a *agent) renew(r *wire.Renew) (step string, err error) {
	now := unix.NsecToTimespec(r.Time)
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		return "set the clock", err
	}
	if err := addEntropy(a.random, r.Seed); err != nil {
		return "seed the random numbers", err
	}
	if err := a.renewBootID(); err != nil {
		return "write " + bootIDFile, err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "read the host name", err
	}
	old, same := unix.ByteSliceToString(u.Nodename[:]), a.machineID
	a.machineID = 0
	if same > 0 {
		defer unix.Close(same)
	}
	if same > 0 && old == r.Hostname {
		// Under emulation each step that runs for the first time costs milliseconds.
		_, err := unix.Pwrite(same, []byte(r.MachineID+"\n"), 0)
		return "write /etc/machine-id", err
	}
	if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
		return "set the host name", err
	}
	if step, err := renewNames("/etc", old, r); err != nil {
		return step, err
	}
	if r.Template {
		if a.machineID, err = openAt(unix.AT_FDCWD, "/etc/machine-id", unix.O_WRONLY|unix.O_NOFOLLOW, 0); err != nil {
			a.machineID = 0 // the root has no such file
		}
	}
	return "", nil
}

// bootIDFile identifies one boot of the kernel (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// renewBootID gives the machine a new boot id. The kernel never changes its own, so a file covers
// it.
func (a *agent) renewBootID() error {
	var b [16]byte
	if n, err := unix.Getrandom(b[:], 0); err != nil || n != len(b) {
		return unix.EIO
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	const digits = "0123456789abcdef"
	var text []byte
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = append(text, digits[c>>4], digits[c&15])
	}
	if a.bootID == 0 {
		fd, err := coverBootID()
		if err != nil {
			return err
		}
		a.bootID = fd
	}
	_, err := unix.Pwrite(a.bootID, append(text, '\n'), 0)
	return err
}

// coverBootID covers the kernel's boot id with a file, removes the file's name, and returns its
// descriptor. Programs can change neither. The name is used only to create and remove it.
func coverBootID() (int, error) {
	dir, err := openDir("/tmp")
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	fd, err := createNew(dir, unix.O_RDWR, 0o444)
	if err != nil {
		return -1, err
	}
	err = unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), bootIDFile, "", unix.MS_BIND, "")
	if err == nil {
		err = setMountFlags(bootIDFile, wire.MountReadOnly|wire.MountNoSuid|wire.MountNoDev|wire.MountNoExec, false)
	}
	if err == nil {
		err = unix.Unlinkat(dir, renewing, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// renewNames writes the names of r to the files of a directory that exist. A running program may
// have changed the directory, so no symbolic link is followed and no file of a program is written
// to: each file is replaced. A file that has its content already is left alone, so that a full disk
// is no obstacle to resuming a machine under its old names.
func renewNames(dir, oldHostname string, r *wire.Renew) (step string, err error) {
	etc, err := openDir(dir)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // a program has removed or replaced it
		return "", nil
	default:
		return "open " + dir, err
	}
	defer unix.Close(etc)
	for _, f := range []struct {
		name string
		text func(old []byte) []byte
	}{
		{"machine-id", func([]byte) []byte { return []byte(r.MachineID + "\n") }},
		{"hostname", func([]byte) []byte { return []byte(r.Hostname + "\n") }},
		{"hosts", func(old []byte) []byte { return renameHost(old, oldHostname, r.Hostname) }},
	} {
		if err := replaceFile(etc, f.name, f.text); err != nil {
			return "write " + dir + "/" + f.name, err
		}
	}
	return "", nil
}

// renameHost replaces a host name in the lines of /etc/hosts (hosts(5)). If new is in no line then,
// a line for it is added.
func renameHost(hosts []byte, old, new string) []byte {
	var out []byte
	found := false
	for line := range bytes.Lines(hosts) {
		text, comment := line, []byte(nil)
		if i := bytes.IndexByte(line, '#'); i >= 0 {
			text, comment = line[:i], line[i:]
		}
		for len(text) > 0 {
			n := bytes.IndexAny(text, " \t\r\n")
			space := n == 0
			if n < 0 {
				n = len(text)
			}
			n = max(n, 1)
			word := string(text[:n])
			if !space && word == old {
				word = new
			}
			found = found || word == new
			out, text = append(out, word...), text[n:]
		}
		out = append(out, comment...)
	}
	if found {
		return out
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, "127.0.1.1\t"+new+"\n"...)
}

const (
	// maxRenamed bounds a file whose content replaceFile keeps, in bytes.
	maxRenamed = 64 << 10
	// renewing is the name of a file while it is written.
	renewing = ".sandbar-renew"
)

// replaceFile replaces a file of a directory with one that has the text for its old content, and
// the mode and owner of the old. It does nothing if there is no file, or a directory. The content
// of anything but a regular file of at most maxRenamed bytes counts as empty.
func replaceFile(dir int, name string, text func(old []byte) []byte) error {
	st, err := lstat(dir, name)
	if err == unix.ENOENT || err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err != nil {
		return err
	}
	old, regular, err := readRegular(dir, name)
	if err != nil {
		return err
	}
	want := text(old)
	if regular && bytes.Equal(old, want) {
		return nil
	}
	if !regular {
		st.Mode, st.Uid, st.Gid = 0o644, 0, 0
	}
	fd, err := createNew(dir, unix.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = writeAll(fd, want)
	if err == nil {
		err = unix.Fchown(fd, int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = unix.Fchmod(fd, st.Mode&0o777)
	}
	if err == nil {
		err = unix.Renameat(dir, renewing, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, renewing, 0)
	}
	return err
}

// createNew creates the file renewing, after removing what a program has put there.
func createNew(dir int, access uint64, mode uint32) (int, error) {
	if err := unix.Unlinkat(dir, renewing, 0); err != nil && err != unix.ENOENT {
		return -1, err
	}
	return openAt(dir, renewing, access|unix.O_CREAT|unix.O_EXCL, mode)
}

// readRegular reads a regular file of at most maxRenamed bytes.
func readRegular(dir int, name string) (content []byte, regular bool, err error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch err {
	case nil:
	case unix.ELOOP, unix.ENXIO, unix.ENOENT, unix.EAGAIN: // a link, a socket, removed, or leased (fcntl(2))
		return nil, false, nil
	default:
		return nil, false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxRenamed {
		return nil, false, err
	}
	content = make([]byte, maxRenamed+1)
	n := 0
	for n < len(content) {
		k, err := unix.Read(fd, content[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if k == 0 {
			break
		}
		n += k
	}
	return content[:n], n <= maxRenamed, nil
}
