package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent"
)

// Main brings up the machine if this process is its first process. It then does not return. In any
// other process it does nothing.
func Main() {
	if os.Getpid() != 1 || os.Args[0] != Init {
		return
	}
	if _, err := os.Stat(OrderFile); err != nil {
		return
	}
	m := machine{port: -1, network: -1, tun: -1}
	err := m.bringUp()
	m.fail(err)
}

// machine is the state of the bring-up.
type machine struct {
	step string // the current step, for errors
	port int    // the connection, -1 before it is open
	self int    // the program

	// network is the port for packets, tun the TUN driver; -1 without.
	network, tun int
}

// Directories of the initial file system. root becomes the machine's root.
const (
	lowerDir = "/lower"
	boundDir = "/bound"
	upperDir = boundDir + "/upper"
	workDir  = boundDir + "/work"
	rootDir  = "/root"
	homeDir  = "/home/user"
	disk     = "/dev/vda"
)

// patience bounds the wait for a device. It is 0.05 s in an emulated machine on a busy host, and
// 0.7 s with a tenth of a processor, where the whole boot takes 85 s. A host on which it is longer
// than this ends the boot by its own bound before.
const patience = 10 * time.Second

// fail reports the failed step and powers the machine off.
func (m *machine) fail(err error) {
	line := []byte(FailurePrefix + m.step + ": " + err.Error() + "\n")
	if m.port >= 0 {
		_, _ = unix.Write(m.port, line)
	}
	_, _ = unix.Write(2, line) // the console
	time.Sleep(100 * time.Millisecond)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1) // the kernel panics and, with panic=-1, reboots
}

// bringUp executes all steps. It returns only if one fails.
func (m *machine) bringUp() (err error) {
	unix.Umask(0o022)
	if m.self, err = unix.Open(Init, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		m.step = "open " + Init
		return err
	}
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"mount the kernel's file systems", mountKernel},
		{"load modules", loadModules},
		{"open the port " + Port, m.openPort},
		{"open the port " + NetworkPort, m.openNetwork},
		{"mount the root's lower layer", mountLower},
		{"mount the root's upper layer", mountUpper},
		{"mount the overlay", mountOverlay},
		{"mount /dev and /proc", mountOwn},
		{"change the root", changeRoot},
		{"seal the kernel's settings", sealSettings},
		{"start the agent", m.startAgent},
	} {
		m.step = s.name
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

// mount mounts a file system on a directory, which it creates.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return &os.PathError{Op: "mount " + kind + " on", Path: target, Err: err}
	}
	return nil
}

// sealed are the flags of mounts that contain no program.
const sealed = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

func mountKernel() error {
	return errors.Join(
		mount("proc", "/proc", "proc", sealed, ""),
		mount("sysfs", "/sys", "sysfs", sealed, ""),
		mount("devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, ""))
}

// loadModules loads the modules in order and removes their files, which occupy memory.
func loadModules() error {
	order, err := os.ReadFile(OrderFile)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule(filepath.Join(ModuleDir, name)); err != nil && err != unix.EEXIST {
			return &os.PathError{Op: "load", Path: name, Err: err}
		}
	}
	return os.RemoveAll(ModuleDir)
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// await calls ready until it reports true.
func await(ready func() bool) error {
	for end := time.Now().Add(patience); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return unix.ETIMEDOUT
		}
	}
	return nil
}

// lowestFD is above all descriptors that the agent has at fixed numbers.
const lowestFD = agent.MachineTunFD + 1

// openPort opens the agent's connection.
func (m *machine) openPort() (err error) {
	m.port, err = openPort(Port)
	return err
}

// openNetwork opens the port for packets and the TUN driver, if the kernel has it.
func (m *machine) openNetwork() error {
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the machine can have no network, which the agent reports
	}
	if m.tun, err = unix.FcntlInt(uintptr(tun), unix.F_DUPFD_CLOEXEC, lowestFD); err != nil {
		return err
	}
	m.network, err = openPort(NetworkPort)
	return errors.Join(err, unix.Close(tun))
}

// openPort opens the port of that name.
func openPort(wanted string) (int, error) {
	device := ""
	err := await(func() bool {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // the pattern is right
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == wanted {
				device = "/dev/" + filepath.Base(filepath.Dir(name))
				_, err := os.Stat(device)
				return err == nil
			}
		}
		return false
	})
	if err != nil {
		return -1, err
	}
	// Non-blocking: a blocking write keeps the processor busy until the host has read
	// (__send_to_port in drivers/char/virtio_console.c).
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: device, Err: err}
	}
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowestFD)
}

func mountLower() error {
	err := await(func() bool {
		_, err := os.Stat(disk)
		return err == nil
	})
	if err != nil {
		return &os.PathError{Op: "find", Path: disk, Err: err}
	}
	return mount(disk, lowerDir, "erofs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// mountUpper mounts the tmpfs that bounds all writes. The directories of the upper layer exist in
// the root whatever the lower layer has at their paths, so that no later step resolves a path of
// the lower layer.
func mountUpper() error {
	options := "mode=0700"
	for parameter, option := range map[string]string{DiskParameter: "size", InodesParameter: "nr_inodes"} {
		if n := kernelParameter(parameter); n > 0 {
			options += "," + option + "=" + strconv.FormatUint(n, 10)
		}
	}
	if err := mount("tmpfs", boundDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	for _, dir := range []string{workDir, upperDir + "/dev", upperDir + "/proc", upperDir + "/sys", upperDir + "/tmp",
		upperDir + "/etc", upperDir + homeDir, boundDir + "/tmp", boundDir + "/shm"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, f := range []struct{ path, text string }{
		{"/etc/hosts", "127.0.0.1\tlocalhost sandbar\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
		{"/etc/hostname", "sandbar\n"},
		{"/etc/machine-id", ""}, // until wire.Renew
		{"/etc/resolv.conf", ""},
	} {
		if err := os.WriteFile(upperDir+f.path, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink("../proc/self/mounts", upperDir+"/etc/mtab"),
		unix.Chmod(boundDir+"/tmp", 0o1777), unix.Chmod(boundDir+"/shm", 0o1777),
		unix.Sethostname([]byte("sandbar")))
}

// kernelParameter returns the number of a parameter of the kernel's command line, 0 if it is
// missing or malformed.
func kernelParameter(name string) uint64 {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return 0
	}
	for _, word := range strings.Fields(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			n, _ := strconv.ParseUint(value, 10, 63)
			return n
		}
	}
	return 0
}

// bind binds a directory of the tmpfs at a path of the new root.
func bind(from, to string) error {
	if err := unix.Mount(from, rootDir+to, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: to, Err: err}
	}
	return nil
}

func mountOverlay() error {
	if err := mount("overlay", rootDir, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		"lowerdir="+lowerDir+",upperdir="+upperDir+",workdir="+workDir); err != nil {
		return err
	}
	// A mount point cannot be removed, so programs always have their home.
	return errors.Join(bind(boundDir+"/tmp", "/tmp"), bind(rootDir+homeDir, homeDir))
}

// devices are the devices of programs: name, major and minor number
// (Documentation/admin-guide/devices.txt).
var devices = [...]struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// mountOwn mounts the /dev and /proc of programs. Their root could fill /dev beyond the limits of
// disk and inodes, so it is read-only.
func mountOwn() error {
	dev := rootDir + "/dev"
	if err := mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=1m,nr_inodes=4096"); err != nil {
		return err
	}
	for _, d := range devices {
		path := dev + "/" + d.name
		if err := errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))), unix.Chmod(path, 0o666)); err != nil {
			return &os.PathError{Op: "make", Path: path, Err: err}
		}
	}
	for _, link := range [...][2]string{{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"}} {
		if err := os.Symlink(link[1], dev+"/"+link[0]); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dev+"/shm", 0o755); err != nil {
		return err
	}
	return errors.Join(
		mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"),
		bind(boundDir+"/shm", "/dev/shm"),
		unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, ""),
		mount("proc", rootDir+"/proc", "proc", sealed, ""))
}

// changeRoot makes the new root the root, and removes the other mounts and the program from the
// initial file system, so that nothing of them remains within the reach of programs.
func changeRoot() error {
	for _, dir := range []string{"/sys", "/dev", boundDir, lowerDir, "/proc"} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
	}
	if err := os.Remove(Init); err != nil {
		return err
	}
	if err := unix.Chdir(rootDir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// settings are the kernel's settings below /proc/sys that keep programs from the kernel. A kernel
// without one has nothing that it would restrict.
var settings = [...]struct{ name, value, why string }{
	{"kernel/modules_disabled", "1", "all modules are loaded; nothing can load another"},
	{"kernel/modprobe", "\n", "the kernel executes no program for a missing module"},
	{"kernel/core_pattern", "core", "the kernel executes no program for a crash"},
	{"user/max_user_namespaces", "0", "in a user namespace a program would have all capabilities, over more of the kernel"},
}

// sealSettings sets settings, and makes everything in /proc read-only except for processes.
// Programs are user 0, to whom most files belong, and many need no capability. Programs can remove
// no mount.
func sealSettings() error {
	for _, s := range settings {
		f, err := os.OpenFile("/proc/sys/"+s.name, os.O_WRONLY, 0)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(s.value)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == os.ModeSymlink || strings.Trim(e.Name(), "0123456789") == "" {
			continue
		}
		path := "/proc/" + e.Name()
		info, err := e.Info()
		if err != nil || !info.IsDir() && info.Mode()&0o222 == 0 {
			continue // it has no file that can be written
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "bind", Path: path, Err: err}
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
			return &os.PathError{Op: "make read-only", Path: path, Err: err}
		}
	}
	return nil
}

// startAgent executes the program as the agent.
func (m *machine) startAgent() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if null, err = unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, lowestFD); err != nil {
		return err
	}
	self, err := unix.FcntlInt(uintptr(m.self), unix.F_DUPFD_CLOEXEC, lowestFD)
	if err != nil {
		return err
	}
	for _, d := range [...]struct{ from, to int }{{null, 0}, {null, 1}, {null, 2}, {m.port, agent.MachineSocketFD},
		{m.network, agent.MachineNetworkFD}, {m.tun, agent.MachineTunFD}} {
		if d.from < 0 {
			continue
		}
		if err := unix.Dup3(d.from, d.to, 0); err != nil {
			return err
		}
	}
	return unix.Exec("/proc/self/fd/"+strconv.Itoa(self), []string{agent.Name, agent.ModeMachine},
		[]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
}
