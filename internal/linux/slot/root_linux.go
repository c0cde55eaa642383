package slot

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// cwd is AT_FDCWD.
const cwd = uint64(1<<64 - 100)

// root writes the steps that build a root, as the agent's builder does (package agent). What the
// builder asks the file system, root asks this host's while it writes the list: the slots of a list
// are used up before that changes (Changed).
type root struct {
	*list
	base  string
	parts string          // has the prepared directories; see splitPlan
	made  map[string]bool // directories that the steps have made
	fd    uint64          // word for a descriptor
	blank string          // an empty file that masks files; unlinked by MountSetFlags
	// mount points of the first masked directory and file, which later masks bind
	maskDir, maskFile string
	// addresses of the texts that are new for each sandbox
	machineID, bootID uint64
}

// unlinkBlank removes the name of the file that masks others, if there is one.
func (r *root) unlinkBlank() {
	if r.blank != "" {
		r.call("remove a mask's name", unix.SYS_UNLINKAT, cwd, r.blank, 0)
		r.blank = ""
	}
}

// prepare adds the steps of a plan.
func (r *root) prepare(plan []wire.Mount) error {
	for i := range plan {
		if err := r.apply(&plan[i]); err != nil {
			return err
		}
	}
	return nil
}

// build adds the steps of a plan, and those that make it the root.
func (r *root) build(plan []wire.Mount) error {
	if err := r.prepare(plan); err != nil {
		return err
	}
	r.unlinkBlank()
	r.call("unmount the slot's "+procDir, unix.SYS_UMOUNT2, procDir, unix.MNT_DETACH)
	const name = "change to the new root"
	r.call(name, unix.SYS_CHDIR, r.base)
	r.mount(name, ".", "/", "", unix.MS_MOVE, "")
	r.call(name, unix.SYS_CHROOT, ".")
	r.call(name, unix.SYS_CHDIR, "/")
	return nil
}

func (r *root) apply(m *wire.Mount) error {
	target, name := r.base+m.Target, m.Kind.String()+" "+m.Target
	switch m.Kind {
	case wire.MountTmpfs:
		r.mkdirAll(target)
		r.mount(name, "tmpfs", target, "tmpfs", kernelFlags(m.Flags), tmpfsOptions(m))
		r.made[target] = true
	case wire.MountBind:
		return r.bind(name, m.Source, target, m.Flags)
	case wire.MountBindInner:
		r.mkdirAll(target)
		r.mount(name, r.base+m.Source, target, "", unix.MS_BIND|unix.MS_REC, "").optionalIf(m.Flags)
		r.setFlags(name, target, m.Flags, true).optionalIf(m.Flags)
	case wire.MountProc:
		r.mkdirAll(target)
		r.mount(name, "proc", target, "proc", kernelFlags(m.Flags), m.Source)
	case wire.MountDevpts:
		r.mkdirAll(target)
		r.mount(name, "devpts", target, "devpts", kernelFlags(m.Flags), "newinstance,ptmxmode=0666,mode=0620")
	case wire.MountMkdir:
		r.mkdir(name, target, m)
	case wire.MountSymlink:
		r.call(name, unix.SYS_SYMLINKAT, m.Source, cwd, target)
	case wire.MountFile:
		r.file(name, target, m.Source, m.Mode)
	case wire.MountMask:
		r.mask(name, target, m.Target)
	case wire.MountMaskOthers:
		return r.maskOthers(target, m.Target, strings.Fields(m.Source))
	case wire.MountReplaceFile:
		r.cover(name, target, m)
	case wire.MountSetFlags:
		r.unlinkBlank()
		r.setFlags(name, target, m.Flags, false)
	case wire.MountOverlay:
		r.overlay(name, target, m)
	case mountPart:
		if m.Mode == unix.S_IFREG {
			r.touch(target)
		} else {
			r.mkdirAll(target)
		}
		r.mount("bind "+m.Target, r.parts+m.Source, target, "", unix.MS_BIND|unix.MS_REC, "")
	default:
		return sandbar.Errorf(sandbar.Unsupported, "a slot cannot %s", name)
	}
	return nil
}

// optionalIf makes a step optional if flags say so.
func (s *step) optionalIf(flags uint32) *step {
	if flags&wire.MountOptional != 0 {
		s.optional()
	}
	return s
}

func (r *root) mount(name, source, target, kind string, flags uint64, data string) *step {
	return r.call(name, unix.SYS_MOUNT, source, target, kind, flags, data)
}

// mkdirAll makes a directory and its missing parents. If that fails, the next step does.
func (r *root) mkdirAll(target string) {
	for i := len(r.base); i < len(target); {
		if n := strings.IndexByte(target[i+1:], '/'); n >= 0 {
			i += 1 + n
		} else {
			i = len(target)
		}
		if dir := target[:i]; !r.made[dir] {
			r.call("", unix.SYS_MKDIRAT, cwd, dir, 0o755).optional()
			r.made[dir] = true
		}
	}
}

// mkdir makes a directory with the plan's mode and owner, or sets both on one that the steps have
// made.
func (r *root) mkdir(name, target string, m *wire.Mount) {
	was := r.made[target]
	if !was {
		r.mkdirAll(target[:strings.LastIndexByte(target, '/')])
		r.call(name, unix.SYS_MKDIRAT, cwd, target, m.Mode)
		r.made[target] = true
	}
	if was || m.UID != 0 || m.GID != 0 {
		r.call(name, unix.SYS_FCHOWNAT, cwd, target, m.UID, m.GID, 0)
	}
	if was || m.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		r.call(name, unix.SYS_FCHMODAT, cwd, target, m.Mode)
	}
}

// touch makes an empty file as a mount point, if there is none. If that fails, the next step does.
func (r *root) touch(target string) {
	r.mkdirAll(target[:strings.LastIndexByte(target, '/')])
	r.call("", unix.SYS_MKNODAT, cwd, target, unix.S_IFREG|0o644, 0).optional()
}

// file makes a file and returns the address of its text.
func (r *root) file(name, target, text string, mode uint32) uint64 {
	r.call(name, unix.SYS_OPENAT, cwd, target, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, mode).save(r.fd)
	addr := r.str(text)
	if text != "" {
		r.call(name, unix.SYS_WRITE, loaded(r.fd), addr, len(text))
	}
	r.call(name, unix.SYS_CLOSE, loaded(r.fd))
	return addr
}

// bind mounts a path of the host, with all mounts below it.
func (r *root) bind(name, source, target string, flags uint32) error {
	info, err := os.Stat(source)
	if err != nil {
		if flags&wire.MountOptional != 0 {
			return nil
		}
		return sandbar.Errorf(sandbar.Unsupported, "the sandbox cannot be built: %s: %w", name, err)
	}
	if info.IsDir() {
		r.mkdirAll(target)
	} else {
		r.touch(target)
	}
	// The builder skips an optional source that it may not reach. Such a sandbox is not for a slot.
	r.mount(name, source, target, "", unix.MS_BIND|unix.MS_REC, "")
	r.setFlags(name, target, flags, true)
	return nil
}

// mask hides the entry shown of the host, which is target in the new root.
func (r *root) mask(name, target, shown string) {
	info, err := os.Lstat(shown)
	switch {
	case err != nil:
	case !info.IsDir():
		r.maskFiles(name, target)
	case r.maskDir != "":
		r.mount(name, r.maskDir, target, "", unix.MS_BIND, "")
	default:
		r.maskDir = target
		r.mount(name, "tmpfs", target, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555")
	}
}

const maskFlags = wire.MountReadOnly | wire.MountNoSuid | wire.MountNoDev | wire.MountNoExec

func (r *root) maskFiles(name, target string) {
	if r.maskFile != "" {
		r.mount(name, r.maskFile, target, "", unix.MS_BIND, "")
		return
	}
	r.blank, r.maskFile = r.base+"/.blank", target
	r.touch(r.blank)
	r.mount(name, r.blank, target, "", unix.MS_BIND, "")
	r.setFlags(name, target, maskFlags, false)
}

// maskOthers masks the entries of /proc that are not in shown and that somebody without privileges
// could access: the files of /proc belong to the host's root, over which the capabilities of a user
// namespace have no power.
func (r *root) maskOthers(target, dir string, shown []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "reading %s: %w", dir, err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.Trim(name, "0123456789") == "" || e.Type() == os.ModeSymlink || slices.Contains(shown, name) {
			continue
		}
		info, err := e.Info()
		if err != nil || info.Mode()&0o007 != 0 {
			r.mask("mask "+dir+"/"+name, target+"/"+name, dir+"/"+name)
		}
	}
	return nil
}

// cover binds a read-only file with a text over a file of the host, if there is one.
func (r *root) cover(name, target string, m *wire.Mount) {
	if _, err := os.Stat(m.Target); err != nil && m.Target != machineID {
		return
	}
	file := r.base + "/.cover"
	mode := uint32(0o444)
	if m.Mode != 0 {
		mode = m.Mode
	}
	text := r.file(name, file, m.Source, mode)
	r.mount(name, file, target, "", unix.MS_BIND, "")
	r.call(name, unix.SYS_UNLINKAT, cwd, file, 0)
	r.setFlags(name, target, maskFlags, false)
	if m.Target == machineID {
		r.machineID = text
	} else {
		r.bootID = text
	}
}

// overlay mounts an overlay, if the file system has user.* attributes (package agent, overlay).
func (r *root) overlay(name, target string, m *wire.Mount) {
	parts, failed := r.base+m.Source, r.fail
	if m.Flags&wire.MountOptional != 0 {
		failed = r.label()
	}
	const attribute = "user.sandbar"
	r.mkdirAll(target)
	r.call(name, unix.SYS_SETXATTR, parts+"/upper", attribute, 0, 0, 0).failTo(failed)
	r.call(name, unix.SYS_REMOVEXATTR, parts+"/upper", attribute).failTo(failed)
	r.mount(name, "overlay", target, "overlay", kernelFlags(m.Flags),
		"userxattr,lowerdir="+parts+"/lower,upperdir="+parts+"/upper,workdir="+parts+"/work").failTo(failed)
	if failed != r.fail {
		r.place(failed)
	}
}

// setFlags adds flags to a mount and, if all is set, to the mounts below it.
func (r *root) setFlags(name, target string, flags uint32, all bool) *step {
	var set uint64
	for _, p := range flagPairs() {
		if flags&p.flag != 0 {
			set |= p.attr
		}
	}
	how := 0
	if all {
		how = unix.AT_RECURSIVE
	}
	const size = 32 // of struct mount_attr
	return r.call(name, unix.SYS_MOUNT_SETATTR, cwd, target, how, r.words(set, 0, 0, 0), size)
}

type flagPair struct {
	flag         uint32
	kernel, attr uint64
}

func flagPairs() [4]flagPair {
	return [...]flagPair{
		{wire.MountReadOnly, unix.MS_RDONLY, unix.MOUNT_ATTR_RDONLY},
		{wire.MountNoSuid, unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID},
		{wire.MountNoDev, unix.MS_NODEV, unix.MOUNT_ATTR_NODEV},
		{wire.MountNoExec, unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC},
	}
}

// kernelFlags converts flags to those of mount(2).
func kernelFlags(flags uint32) (k uint64) {
	for _, p := range flagPairs() {
		if flags&p.flag != 0 {
			k |= p.kernel
		}
	}
	return k
}

func tmpfsOptions(m *wire.Mount) string {
	o := "mode=0" + strconv.FormatUint(uint64(m.Mode), 8) + ",uid=" + strconv.FormatUint(uint64(m.UID), 10) + ",gid=" + strconv.FormatUint(uint64(m.GID), 10)
	if m.Size > 0 {
		o += ",size=" + strconv.FormatInt(m.Size, 10)
	}
	if m.Inodes > 0 {
		o += ",nr_inodes=" + strconv.FormatInt(m.Inodes, 10)
	}
	return o
}
