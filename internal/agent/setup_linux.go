package agent

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/process/prespawn"
)

// setUp turns new namespaces, or a prebuilt container, into a confined sandbox. On failure it names
// the step. fds are the detached mounts that came with the plan.
//
// The order matters. Each step needs rights that a later step drops: mounts before the Landlock
// ruleset (Landlock forbids mounting, landlock(7)), the launcher's own restrictions before the
// agent's capabilities go, all threads before the process limit, the filter last because it forbids
// most of the above.
func (a *agent) setUp(s *wire.Setup, fds []int) (step string, err error) {
	a.uid, a.gid = s.UID, s.GID
	a.env, a.dir, a.nice = programEnv(s, os.Environ()), s.Dir, int(s.Nice)
	a.separateUser, a.mitigate = os.Getuid() != int(s.UID), s.Mitigate

	for _, x := range s.Sysctls {
		// Bounds of the sandbox's own namespaces. A kernel without the setting has no such
		// resource.
		_ = writeFile("/proc/sys/"+x.Name, x.Value)
	}
	if step, err := a.buildAndOpenProc(s, fds); err != nil {
		return step, err
	}
	unix.Umask(0o022)
	if a.ruleset, err = landlockRuleset(&s.Landlock); err != nil {
		return "make the Landlock ruleset", err
	}
	group, step, err := makeGuestCgroup(s.PIDs)
	if err != nil {
		return step, err
	}
	if s.Mitigate {
		if err := prctl(unix.Prctl).createCoreCookie(); err != nil {
			return "have a core scheduling cookie", err
		}
	}
	if step, err := a.startLauncher(); err != nil {
		return step, err
	}
	// early, while there are few threads: AllThreadsSyscall stops each
	if err := a.dropCaps(); err != nil {
		return "drop capabilities", err
	}
	prespawn.Threads(spareThreads)
	if step, err := a.startWorkers(); err != nil {
		return step, err
	}
	a.rlimits = addOwnThreads(s.Rlimits)
	if step, err := setRlimits(a.rlimits); err != nil {
		return step, err
	}
	if step, err := sealAgent(s.Seccomp); err != nil {
		return step, err
	}
	if step, err := a.sealLauncher(s.ProgramSeccomp); err != nil {
		return step, err
	}
	if a.tags, err = newProcessTags(s.TagResource); err != nil {
		return "number programs by a resource limit", err
	}
	a.killer.setResource(s.TagResource)
	if step, err := group.enter(); err != nil {
		return step, err
	}
	go a.killer.run()
	return a.watch.open(s, a.proc)
}

// programEnv returns the environment of programs; own is the agent's.
func programEnv(s *wire.Setup, own []string) []string {
	if !s.OwnEnv.Use {
		return s.Env
	}
	own = slices.DeleteFunc(slices.Clone(own), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(s.OwnEnv.Omit, func(omit string) bool {
			start, all := strings.CutSuffix(omit, "*")
			return name == omit || all && strings.HasPrefix(name, start)
		})
	})
	return MergeEnv(MergeEnv(s.OwnEnv.Below, own), s.Env)
}

// buildAndOpenProc builds the sandbox and opens the procfs by which the agent reads processes. Part
// of that runs before the root is built, because it needs the host's /proc.
func (a *agent) buildAndOpenProc(s *wire.Setup, fds []int) (step string, err error) {
	if s.Watchdog > 0 && !s.WatchKernel {
		a.watch.socketBytes = boundSockets()
	}
	// with a user of its own the agent may read every process, so the sandbox's /proc suffices
	var mounted error = unix.EPERM
	if !a.separateUser && !s.Prebuilt {
		a.proc, mounted = mountProcfs()
	}
	if step, err := a.build(s, fds); err != nil {
		return step, err
	}
	if mounted != nil {
		if a.proc, err = openProcfs(); err != nil {
			return "open /proc", err
		}
	}
	return "", nil
}

// build applies host name, network and root to new namespaces. In a prebuilt sandbox it removes
// files that programs must not find.
func (a *agent) build(s *wire.Setup, fds []int) (step string, err error) {
	if s.Prebuilt {
		return removeFiles(s.Remove)
	}
	a.oom.setGuest()
	unix.Umask(0) // the plan's modes are exact
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return "set the host name", err
	}
	if err := loopbackUp(); err != nil {
		return "bring up the loopback", err
	}
	if step, err := a.makeInterface(&s.Interface); err != nil {
		return step, err
	}
	a.keep, step, err = buildRoot(s.Root, s.Mounts, fds)
	return step, err
}

// removeFiles removes files and empty directories and skips missing ones.
func removeFiles(names []string) (step string, err error) {
	for _, name := range names {
		err := unix.Unlink(name)
		if err == unix.EISDIR {
			err = unix.Rmdir(name)
		}
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR {
			return "remove " + name, err
		}
	}
	return "", nil
}

// addOwnThreads raises RLIMIT_NPROC by the agent's own threads: the kernel counts all threads of a
// user, and the agent's must not count towards the limit of the programs.
func addOwnThreads(limits []wire.Rlimit) []wire.Rlimit {
	limits = slices.Clone(limits)
	for i := range limits {
		if r := &limits[i]; r.Resource == unix.RLIMIT_NPROC {
			own := uint64(ownThreads())
			r.Soft, r.Hard = r.Soft+own, r.Hard+own
		}
	}
	return limits
}

// setRlimits sets limits on the calling process, which its children inherit.
func setRlimits(limits []wire.Rlimit) (step string, err error) {
	for _, r := range limits {
		lim := unix.Rlimit{Cur: r.Soft, Max: r.Hard}
		if err := unix.Setrlimit(int(r.Resource), &lim); err != nil {
			return "set rlimit " + strconv.Itoa(int(r.Resource)), err
		}
	}
	return "", nil
}

// ownThreads returns the number of threads of this process, with those that the Go runtime has
// decided to create. On a busy processor the kernel may not know them yet: if a goroutine is locked
// to its thread, the runtime lets another thread create the new one.
func ownThreads() uint32 {
	n, _ := runtime.ThreadCreateProfile(nil)
	return uint32(n)
}

// dropCaps drops the capabilities that the agent no longer needs, on all threads. AllThreadsSyscall
// is not available in a binary with cgo, such as a test under the race detector. There each
// existing thread drops its own, and new threads inherit the reduced set.
func (a *agent) dropCaps() error {
	err := setCapsAllThreads(a.keptCaps())
	if err == unix.ENOTSUP {
		prespawn.Threads(spareThreads, func() { _ = setCaps(a.keptCaps()) })
		runtime.LockOSThread() // never unlocked: this thread has no capabilities any more
		return setCaps(a.keptCaps())
	}
	return err
}

// keptCaps returns the capabilities that the agent keeps: SETUID and SETGID to start programs as
// another user, KILL to signal them, and CHOWN for the pipes of their streams if the host cannot
// pass its own.
func (a *agent) keptCaps() uint64 {
	if !a.separateUser {
		return 0
	}
	caps := uint64(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL)
	if !a.conn.passesFDs {
		caps |= 1 << unix.CAP_CHOWN
	}
	return caps
}

// sealAgent installs the seccomp filter on all threads, which programs inherit, and makes the agent
// undumpable.
func sealAgent(filter []byte) (step string, err error) {
	runtime.LockOSThread() // the thread that installs a filter must have no_new_privs (seccomp(2))
	defer runtime.UnlockOSThread()
	// SECCOMP_FILTER_FLAG_TSYNC sets no_new_privs on the other threads too.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "set no_new_privs", err
	}
	if len(filter) > 0 {
		if err := installFilter(filter, unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
			return "install the seccomp filter", err
		}
	}
	// The change of credentials made the process dumpable again (prctl(2), PR_SET_DUMPABLE).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return "become undumpable", err
	}
	return "", nil
}

// loopbackUp brings up "lo", the only interface of a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// buildRoot builds the plan's tree over base and makes it the root (pivot_root(2)). No mount of the
// host's tree stays reachable. kept is that of the plan's MountKeep.
func buildRoot(base string, plan []wire.Mount, fds []int) (kept keep, step string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return keep{}, "make mounts private", err
	}
	b := builder{base: base, root: base, receivedMounts: fds, sourceMounts: map[string]int{}, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	defer b.close()
	if step, err := b.openSources(plan); err != nil {
		return keep{}, step, err
	}
	for i := range plan {
		m := &plan[i]
		if err := b.apply(m); err != nil {
			return keep{}, m.Kind.String() + " " + m.Target, err
		}
	}
	if err := unix.Chdir(b.root); err != nil {
		return keep{}, "enter the new root", err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return keep{}, "pivot to the new root", err
	}
	// pivot_root(".", ".") stacks the old root over the new one. Detaching it uncovers the new root
	// (pivot_root(2), NOTES).
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return keep{}, "detach the old root", err
	}
	if err := unix.Chdir("/"); err != nil {
		return keep{}, "enter the new root", err
	}
	return b.keep, "", nil
}

// builder builds a root below base.
type builder struct {
	base           string
	root           string // becomes the root: base, or the target of MountRoot
	receivedMounts []int  // detached mounts that came with the plan
	// open_tree(2) clones of host directories that the plan attaches, by path
	sourceMounts map[string]int
	// mount point of the first masked directory, which later masks bind
	maskDir   string
	emptyFile string // an empty file that masked files show; MountSetFlags unlinks it
	maskMount string // mount point of the first masked file, which later masks bind
	keep      keep   // of MountKeep

	uid, gid uint32 // the agent's own ids, which own what it creates
}

// apply performs one step of the plan. It resolves only paths of the plan. No program has run yet,
// so nothing can have replaced them.
func (b *builder) apply(m *wire.Mount) error {
	target := b.base + m.Target
	switch m.Kind {
	case wire.MountTmpfs:
		if err := mkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", target, "tmpfs", mountFlags(m.Flags), tmpfsOptions(m))
	case wire.MountBind:
		return bind(m.Source, target, m.Flags)
	case wire.MountBindInner:
		return bind(b.base+m.Source, target, m.Flags)
	case wire.MountProc:
		if err := mkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("proc", target, "proc", mountFlags(m.Flags), m.Source)
	case wire.MountDevpts:
		if err := mkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("devpts", target, "devpts", mountFlags(m.Flags), "newinstance,ptmxmode=0666,mode=0620")
	case wire.MountMkdir:
		return b.mkdir(target, m)
	case wire.MountSymlink:
		return unix.Symlink(m.Source, target)
	case wire.MountFile:
		return newFile(target, m.Source, m.Mode)
	case wire.MountMask:
		return b.mask(target)
	case wire.MountMaskOthers:
		return b.maskOthers(target, strings.Fields(m.Source))
	case wire.MountReplaceFile:
		return b.cover(target, m.Source)
	case wire.MountSetFlags:
		if b.emptyFile != "" {
			if err := unix.Unlink(b.emptyFile); err != nil && err != unix.ENOENT {
				return err
			}
		}
		return setMountFlags(target, m.Flags, false)
	case wire.MountAttach:
		return b.attach(m, target)
	case wire.MountOverlay:
		err := overlay(b.base+m.Source, target, m.Flags)
		if m.Flags&wire.MountOptional != 0 {
			return nil
		}
		return err
	case wire.MountKeep:
		return b.keepMount(m, target)
	case wire.MountRestore:
		return b.restoreFiles(m)
	case wire.MountRoot:
		b.root = target
		return nil
	}
	return unix.EINVAL
}

// mkdir creates a directory with the plan's mode and owner, or sets both on an existing one.
func (b *builder) mkdir(target string, m *wire.Mount) error {
	made := unix.Mkdir(target, m.Mode) == nil // the umask is 0, so the mode is exact
	if !made {
		if err := mkdirAll(target, 0o755); err != nil {
			return err
		}
	}
	if !made || m.UID != b.uid || m.GID != b.gid {
		if err := unix.Chown(target, int(m.UID), int(m.GID)); err != nil {
			return err
		}
	}
	if made && m.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 { // chown(2) may clear the set-id bits
		return nil
	}
	return unix.Chmod(target, m.Mode)
}

// bind mounts source, with all mounts below it, at target.
func bind(source, target string, flags uint32) error {
	var st unix.Stat_t
	if err := unix.Stat(source, &st); err != nil {
		if flags&wire.MountOptional != 0 && (err == unix.ENOENT || err == unix.EACCES || err == unix.ENOTDIR) {
			return nil
		}
		return err
	}
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = mkdirAll(target, 0o755)
	} else {
		err = touch(target)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return setMountFlags(target, flags, true)
}

// mask hides target. A missing target needs no mask.
func (b *builder) mask(target string) error {
	var st unix.Stat_t
	if err := unix.Lstat(target, &st); err != nil {
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return b.maskFile(target)
	}
	if b.maskDir != "" { // a bind costs a third of the time of a new tmpfs
		return unix.Mount(b.maskDir, target, "", unix.MS_BIND, "")
	}
	b.maskDir = target
	return unix.Mount("tmpfs", target, "tmpfs",
		unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555")
}

// maskOthers masks the entries of dir, which is the sandbox's /proc, except processes, symbolic
// links and the names in shown. A link's target has a mask of its own. An entry that the agent
// cannot access gets no mask, because each mask costs time in every sandbox: here the agent has all
// capabilities of the user namespace, and programs have none.
func (b *builder) maskOthers(dir string, shown []string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := e.Name()
		if err == nil && strings.Trim(name, "0123456789") != "" && e.Type() != os.ModeSymlink && !slices.Contains(shown, name) && accessible(dir+"/"+name) {
			err = b.mask(dir + "/" + name)
		}
	}
	return err
}

// accessible reports whether this process may read, write or search path.
func accessible(path string) bool {
	return unix.Access(path, unix.R_OK) == nil || unix.Access(path, unix.W_OK) == nil || unix.Access(path, unix.X_OK) == nil
}

// cover binds a read-only file with the bytes of text over target, if target exists.
func (b *builder) cover(target, text string) error {
	if err := unix.Access(target, unix.F_OK); err != nil {
		return nil
	}
	name := b.base + "/.cover"
	if err := newFile(name, text, 0o444); err != nil {
		return err
	}
	if err := unix.Mount(name, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Unlink(name); err != nil {
		return err
	}
	return setMountFlags(target, wire.MountReadOnly|wire.MountNoSuid|wire.MountNoDev|wire.MountNoExec, false)
}

// maskFile binds an empty read-only file over target. /dev/null, the usual mask, would accept
// writes and discard them.
func (b *builder) maskFile(target string) error {
	if b.maskMount != "" { // the bind inherits the read-only flags of the first mask
		return unix.Mount(b.maskMount, target, "", unix.MS_BIND, "")
	}
	b.emptyFile = b.base + "/.blank"
	if err := touch(b.emptyFile); err != nil {
		return err
	}
	if err := unix.Mount(b.emptyFile, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	b.maskMount = target
	return setMountFlags(target, wire.MountReadOnly|wire.MountNoSuid|wire.MountNoDev|wire.MountNoExec, false)
}

func mountFlags(f uint32) uintptr {
	var flags uintptr
	if f&wire.MountReadOnly != 0 {
		flags |= unix.MS_RDONLY
	}
	if f&wire.MountNoSuid != 0 {
		flags |= unix.MS_NOSUID
	}
	if f&wire.MountNoDev != 0 {
		flags |= unix.MS_NODEV
	}
	if f&wire.MountNoExec != 0 {
		flags |= unix.MS_NOEXEC
	}
	return flags
}

// setMountFlags adds flags to a mount and, if all is set, to the mounts below it. A user namespace
// cannot clear flags of a mount from its parent namespace (mount_namespaces(7), locked mounts), so
// this only adds.
func setMountFlags(target string, f uint32, all bool) error {
	attr := unix.MountAttr{}
	for _, p := range [...]struct {
		flag uint32
		attr uint64
	}{
		{wire.MountReadOnly, unix.MOUNT_ATTR_RDONLY},
		{wire.MountNoSuid, unix.MOUNT_ATTR_NOSUID},
		{wire.MountNoDev, unix.MOUNT_ATTR_NODEV},
		{wire.MountNoExec, unix.MOUNT_ATTR_NOEXEC},
	} {
		if f&p.flag != 0 {
			attr.Attr_set |= p.attr
		}
	}
	if attr.Attr_set == 0 {
		return nil
	}
	how := uint(0)
	if all {
		how = unix.AT_RECURSIVE
	}
	return unix.MountSetattr(unix.AT_FDCWD, target, how, &attr)
}

func tmpfsOptions(m *wire.Mount) string {
	o := "mode=0" + strconv.FormatUint(uint64(m.Mode), 8) +
		",uid=" + strconv.FormatUint(uint64(m.UID), 10) +
		",gid=" + strconv.FormatUint(uint64(m.GID), 10)
	if b := tmpfsBounds(m); b != "" {
		o += "," + b
	}
	return o
}

// tmpfsBounds returns the options for the size of a tmpfs.
func tmpfsBounds(m *wire.Mount) string {
	var o []string
	if m.Size > 0 {
		o = append(o, "size="+strconv.FormatInt(m.Size, 10))
	}
	if m.Inodes > 0 {
		o = append(o, "nr_inodes="+strconv.FormatInt(m.Inodes, 10))
	}
	return strings.Join(o, ",")
}

// mkdirAll creates a directory and its missing parents.
func mkdirAll(path string, mode uint32) error {
	err := unix.Mkdir(path, mode)
	if err == unix.ENOENT {
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			if err := mkdirAll(path[:i], mode); err != nil {
				return err
			}
			err = unix.Mkdir(path, mode)
		}
	}
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// newFile creates a file. It does not use package os, which would start the runtime's network
// poller for the descriptor.
func newFile(path, text string, mode uint32) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for b := []byte(text); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// writeFile writes an existing file with a single write(2), as files of /proc and of cgroups
// require.
func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// touch creates an empty file as a mount point. An existing file stays unopened: opening it could
// fail or, for a device or FIFO, have effects.
func touch(path string) error {
	err := unix.Mknod(path, unix.S_IFREG|0o644, 0)
	if err == unix.ENOENT {
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			if err := mkdirAll(path[:i], 0o755); err != nil {
				return err
			}
			err = unix.Mknod(path, unix.S_IFREG|0o644, 0)
		}
	}
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// mountOnItself makes a directory a mount, unless it is one: a mount can be neither removed nor
// renamed (EBUSY).
func mountOnItself(dir string) error {
	var x unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &x); err != nil {
		return err
	}
	if x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil
	}
	return unix.Mount(dir, dir, "", unix.MS_BIND, "")
}
