package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A gVisor sandbox has a kernel of its own in user space. The host's pids cgroup does not count
// that kernel's processes, so the limit is set in a version 2 cgroup of the sandbox's own kernel.
const (
	guestCgroupMount = "/sys"
	guestCgroupDir   = guestCgroupMount + "/sandbox"
)

// guestCgroup is that cgroup, as open files, since /sys is hidden afterwards. The zero value limits
// nothing.
type guestCgroup struct {
	limit      int64 // for programs; the agent's threads come on top
	procs, max *os.File
}

// makeGuestCgroup creates a cgroup for n processes and threads besides the agent's, and then hides
// /sys as in every other sandbox.
func makeGuestCgroup(n int64) (g *guestCgroup, step string, err error) {
	g = &guestCgroup{}
	if n <= 0 {
		return g, "", nil
	}
	g.limit = n
	if err := unix.Mount("cgroup", guestCgroupMount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return g, "mount the pids cgroup", err
	}
	if err := writeFile(guestCgroupMount+"/cgroup.subtree_control", "+pids"); err != nil {
		return g, "enable the pids controller", err
	}
	if err := unix.Mkdir(guestCgroupDir, 0o755); err != nil {
		return g, "make the pids cgroup", err
	}
	for _, f := range []struct {
		to   **os.File
		name string
		how  int
	}{{&g.procs, "/cgroup.procs", os.O_WRONLY}, {&g.max, "/pids.max", os.O_WRONLY}} {
		if *f.to, err = os.OpenFile(guestCgroupDir+f.name, f.how, 0); err != nil {
			return g, "open the pids cgroup", err
		}
	}
	return g, "hide the cgroups", unix.Mount("tmpfs", guestCgroupMount, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
}

// enter moves the agent into the cgroup, which its children inherit, and sets the limit.
func (g *guestCgroup) enter() (step string, err error) {
	if g.limit <= 0 {
		return "", nil
	}
	defer g.procs.Close()
	defer g.max.Close()
	if _, err := g.procs.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return "enter the pids cgroup", err
	}
	_, err = g.max.WriteString(strconv.FormatInt(g.limit+int64(ownThreads()), 10))
	return "limit processes", err
}

// programCgroup is the cgroup of a machine's programs. The agent itself stays outside. The zero
// value limits nothing. dir is 0 if there is none.
type programCgroup struct {
	dir    int   // the directory, in which programs are forked (CLONE_INTO_CGROUP, clone(2))
	events int   // memory.events
	memory int64 // the limit, in bytes
}

// Bounds of a machine that programs may not exhaust.
const (
	// reservedThreads is the number of threads that the kernel and the agent can have besides the
	// programs'.
	reservedThreads = 256
	// reservedMemory is the least memory in bytes that programs leave, and reservedShare the least
	// part of all memory. Without it the agent would wait for memory at each of its allocations.
	reservedMemory = 8 << 20
	reservedShare  = 32
)

// makeProgramCgroup creates the cgroup for n processes and threads, and for the memory that the
// machine has available now. The cgroup file system is not mounted anywhere, so no program sees it.
func makeProgramCgroup(n int64) (g programCgroup, step string, err error) {
	if n <= 0 {
		return g, "", nil
	}
	root, err := newCgroupMount()
	if err != nil {
		return g, "mount the cgroups", err
	}
	defer unix.Close(root)
	if err := writeAt(root, "cgroup.subtree_control", "+pids +memory"); err != nil {
		return g, "enable the controllers of processes and memory", err
	}
	// All programs together then get as much of a processor as one thread of the agent, which so
	// can end any number of them. A kernel without this controller treats them all alike.
	_ = writeAt(root, "cgroup.subtree_control", "+cpu")
	const name = "programs"
	if err := unix.Mkdirat(root, name, 0o755); err != nil {
		return g, "make the cgroup of programs", err
	}
	if g.dir, err = unix.Openat(root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return g, "open the cgroup of programs", err
	}
	if step, err := g.limitMemory(); err != nil {
		return g, step, err
	}
	if step, err := g.limitProcesses(n); err != nil {
		return g, step, err
	}
	g.events, err = g.open("memory.events", unix.O_RDONLY)
	return g, "open memory.events", err
}

// limitProcesses sets the limit of processes and threads. Without the cgroup there is none.
func (g programCgroup) limitProcesses(n int64) (step string, err error) {
	if g.dir == 0 {
		return "", nil
	}
	most, err := os.ReadFile("/proc/sys/kernel/threads-max")
	if err != nil {
		return "read the number of possible threads", err
	}
	n = min(n, int64(parseNumber(bytes.TrimSpace(most)))-reservedThreads)
	return "limit processes", writeAt(g.dir, "pids.max", strconv.FormatInt(n, 10))
}

// limitMemory leaves the agent and the kernel a part of the memory that is available now.
func (g *programCgroup) limitMemory() (step string, err error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "read the size of the memory", err
	}
	available, all := int64(memoryLine(b, "MemAvailable:")), int64(memoryLine(b, "MemTotal:"))
	g.memory = available - max(reservedMemory, all/reservedShare)
	return "limit memory", writeAt(g.dir, "memory.max", strconv.FormatInt(g.memory, 10))
}

// newCgroupMount returns a mount of the version 2 cgroups that is attached nowhere.
func newCgroupMount() (int, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// open opens a file of the cgroup. Programs cannot reach it, and the kernel makes its names.
func (g programCgroup) open(name string, flags int) (int, error) {
	return unix.Openat(g.dir, name, flags|unix.O_CLOEXEC, 0)
}

// writeAt is writeFile for a file of a directory.
func writeAt(dir int, name, value string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// oomKills returns the number of programs that the machine's kernel has killed for lack of memory.
func (g programCgroup) oomKills() uint64 {
	var buf [512]byte
	n, err := unix.Pread(g.events, buf[:], 0)
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(buf[:n], []byte("\noom_kill "))
	if !found {
		return 0
	}
	number, _ := cutField(rest)
	return parseNumber(number)
}
