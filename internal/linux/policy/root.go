package policy

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// HostDir is a directory of the host's root.
type HostDir struct {
	// Name is one of HostDirs. The caller leaves out those that do not exist.
	Name string
	// Link is the text of the link if Name is a symbolic link, "" if it is a directory.
	Link string
}

// HostRootOptions are the parameters of the root of the image "host".
type HostRootOptions struct {
	// Dirs are those of HostDirs that exist on this host.
	Dirs []HostDir
	// Etc are the names in the host's /etc, for rows with patterns. If it is empty, those rows are
	// left out.
	Etc []string
	// Local are the directories in /usr/local that programs can write in, from LocalDirs; "" is
	// /usr/local itself. If it is empty, /usr/local is read-only, like all of /usr.
	Local []string
	// Extra are paths of the host from the operator's configuration. Programs see them read-only at
	// the same path. CheckExtra defines which are valid. A path that does not exist is skipped.
	Extra []string

	// Python is the path of python3 on a host without a command "python". LinksDir then has a link
	// "python" to it. "" for no link.
	Python string

	// Disk and Inodes bound all writable directories together. Disk is in bytes and rounded up to a
	// page. sandbar.Unlimited removes a bound; 0 is an error.
	Disk, Inodes int64
	// UID and GID are the programs' ids inside the user namespace.
	UID, GID uint32
	// Ranged says that the user namespace maps a range of ids and the agent is 0 in it, so that the
	// agent owns what programs must not own. Otherwise UID owns everything, and read-only mounts
	// protect it.
	Ranged bool
	// Hostname is the sandbox's host name.
	Hostname string
	// MachineID is the content of /etc/machine-id, 32 hexadecimal digits, "" for no such file. It
	// must be new for each sandbox.
	MachineID string
	// BootID is a UUID in lower case for the sandbox's own /proc/sys/kernel/random/boot_id, "" for
	// an empty file. It must be new for each sandbox.
	BootID string
	// Omit are parts that a container runtime builds. They are left as empty directories.
	Omit Parts
	// Files says that the writable files are kept for wire.SaveFiles or come with the plan.
	Files Files
}

// Files is what happens to the files that programs write.
type Files struct {
	Kept bool // they can be saved (wire.MountKeep)
	// Restored says that the files of another sandbox come with the plan (wire.MountRestore), as
	// descriptor number Descriptor.
	Restored   bool
	Descriptor int
}

// Parts is a set of parts of a root.
type Parts uint8

// The parts that can be omitted.
const (
	Proc    Parts = 1 << iota // /proc and its masks (ProcMasks, ProcReadOnly)
	Devices                   // /dev except /dev/shm, which is always there
)

// row is a path and the reason for it.
type row struct{ path, why string }

// hostDirs are the directories of the host's root that contain programs.
func hostDirs() []row {
	return []row{
		{"/usr", "the interpreters, their libraries and data"},
		{"/bin", "sh and env by their oldest names; a link to /usr/bin nearly everywhere"},
		{"/sbin", "as /bin"},
		{"/lib", "the loader and libraries where they are not under /usr"},
		{"/lib32", "as /lib, on Debian with a second architecture"},
		{"/lib64", "the path of the loader in every program on amd64"},
		{"/libx32", "as /lib32"},
	}
}

// HostDirs returns the directories that a caller looks up to fill HostRootOptions.Dirs. It must use
// lstat(2), because links are reported and not followed.
func HostDirs() []string {
	var out []string
	for _, r := range append(hostDirs(), maskedHostDirs()...) {
		out = append(out, r.path)
	}
	return out
}

// find returns the caller's entry of a directory.
func (o HostRootOptions) find(name string) (HostDir, bool) {
	i := slices.IndexFunc(o.Dirs, func(d HostDir) bool { return d.Name == name })
	if i < 0 {
		return HostDir{}, false
	}
	return o.Dirs[i], true
}

// Writable returns directories that programs can write in every sandbox. They are parts of one file
// system, so the used bytes of one are those of all (wire.Setup.WatchDisks needs one). Programs
// cannot remove the first.
func Writable() []string { return []string{sandbar.DefaultDir, "/tmp", "/dev/shm"} }

// stagingDir is where directories of the bounded tmpfs are created before they are bound to other
// paths or used by the overlay. The sandbox's /proc is mounted over it afterwards, so programs
// cannot reach them by another path.
const stagingDir = "/proc"

// LinksDir is the last directory in the PATH of programs in the image "host". It has commands that
// the host lacks.
const LinksDir = "/run/bin"

// Sizes in bytes, and inodes, of file systems that are read-only once the sandbox runs. Links and
// directories take no space, each file takes a page.
const (
	skeletonSize   = 1 << 20
	skeletonInodes = 4096
	// tmpfs has no option for "unlimited"; no machine has that much memory.
	unlimitedSize   = 1 << 50
	unlimitedInodes = 1 << 40

	readOnly = wire.MountReadOnly | wire.MountNoSuid | wire.MountNoDev
	sealed   = readOnly | wire.MountNoExec
	// writable is for directories that programs write in and execute from.
	writable = wire.MountNoSuid | wire.MountNoDev
)

// HostRoot returns the steps that build the root of the image "host": the host's own programs and
// selected files of its /etc, read-only; a few devices; a masked /proc; no /sys. Nothing of the
// host's /root, /home, /opt, /srv and /var is visible, unless the operator lists it in Extra.
//
// Everything else is one private and bounded tmpfs that programs can write: the root itself, /home,
// /opt, /run, /srv, /tmp, /var, /dev/shm and, through an overlay over the host's, the directories
// Local of /usr/local. If the kernel does not mount that overlay, /usr/local is read-only.
//
// An unset field, or an Extra path that CheckExtra refuses, is an Invalid error.
func HostRoot(o HostRootOptions) ([]wire.Mount, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := plan{o: o}
	if !o.Ranged {
		p.owner, p.group = o.UID, o.GID
	}
	p.boundedTmpfs("/", 0, 0) // the bounds are set at the end
	// Sticky: if programs are another user than the agent, they cannot replace the agent's entries
	// of the root.
	p.steps[0].Mode = 0o1777
	p.keep("/proc/work /proc/lower")
	p.dir(stagingDir, 0o755, false)
	p.programs()
	p.emptyDirs()
	p.add(wire.Mount{Kind: wire.MountTmpfs, Target: "/etc", Flags: sealed &^ wire.MountReadOnly,
		Size: skeletonSize, Inodes: skeletonInodes, Mode: 0o755, UID: p.owner, GID: p.group})
	p.settings()
	p.extra()
	p.dir("/dev", 0o755, false)
	p.bindInner("/dev", "/dev", sealed&^wire.MountReadOnly)
	p.devices()
	p.dir(stagingDir+"/shm", 0o1777, false)
	p.dir("/dev/shm", 0o755, false)
	p.local()
	p.bindInner(stagingDir+"/shm", "/dev/shm", writable)
	p.proc("")
	p.add(wire.Mount{Kind: wire.MountSetFlags, Target: "/etc", Flags: sealed})
	p.add(wire.Mount{Kind: wire.MountSetFlags, Target: "/dev", Flags: sealed})
	p.steps[0].Size, p.steps[0].Inodes = p.tmpfsBounds(reservedBytes(o.BootID), reservedInodes(p.steps))
	return p.steps, nil
}

// keep lets the agent save the files of the bounded tmpfs, except skip.
func (p *plan) keep(skip string) {
	if p.o.Files.Kept || p.o.Files.Restored {
		p.add(wire.Mount{Kind: wire.MountKeep, Source: skip, Target: "/"})
	}
}

// restore restores the files of another sandbox. Entries at the paths in replaced take the place of
// the plan's. The directories that later steps use must exist: the files come from a program, which
// could have put a link there.
func (p *plan) restore(replaced string, uid, gid uint32) {
	if p.o.Files.Restored {
		p.add(wire.Mount{Kind: wire.MountRestore, Source: replaced, Target: "/", Size: int64(p.o.Files.Descriptor), UID: uid, GID: gid})
	}
}

// reservedBytes are the bytes in use before a program runs: one page for the boot id.
func reservedBytes(bootID string) int64 {
	if bootID == "" {
		return 0
	}
	return 4096
}

// reservedInodes are the inodes in use before a program runs: those that the steps create on the
// bounded tmpfs. It also counts mount points of devices and Extra paths that turn out to be
// missing.
func reservedInodes(steps []wire.Mount) int64 {
	made := map[string]bool{"/": true}
	n := int64(1)
	var others []string // mount points of other file systems
	for _, m := range steps {
		in := func(other string) bool { return m.Target != other && beneath(m.Target, other) }
		for dir := m.Target; !made[dir] && !slices.ContainsFunc(others, in); dir = path.Dir(dir) {
			made[dir] = true
			n++
		}
		switch m.Kind {
		case wire.MountTmpfs, wire.MountBind, wire.MountProc:
			if m.Target != "/" {
				others = append(others, m.Target)
			}
		case wire.MountOverlay:
			// a directory that the kernel creates in work, and the attribute that it tries to write
			// there
			n += 2
		case wire.MountReplaceFile, wire.MountMaskOthers:
			n++ // an unlinked file
		}
	}
	return n
}

func (o HostRootOptions) check() error {
	bad := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: "the root of the image \"host\": " + what}
	}
	known := HostDirs()
	for _, d := range o.Dirs {
		if !slices.Contains(known, d.Name) {
			return bad("dirs", sandbar.Quote(d.Name, 80)+" is not one of "+strings.Join(known, ", "))
		}
	}
	if usr, ok := o.find("/usr"); !ok || usr.Link != "" {
		return bad("dirs", "there is no directory /usr on this host")
	}
	for _, e := range o.Extra {
		if err := CheckExtra(e); err != nil {
			return err
		}
	}
	return checkRoot(bad, o.Disk, o.Inodes, o.Hostname, o.MachineID, o.BootID)
}

// checkRoot checks the options that all roots have. bad makes the error of a field.
func checkRoot(bad func(field, what string) error, disk, inodes int64, hostname, machineID, boot string) error {
	switch {
	case disk == 0 || disk < sandbar.Unlimited:
		return bad("disk", strconv.FormatInt(disk, 10)+" bytes; give a number over 0, or -1 for no bound")
	case inodes == 0 || inodes < sandbar.Unlimited:
		return bad("inodes", strconv.FormatInt(inodes, 10)+" inodes; give a number over 0, or -1 for no bound")
	case !hostnameOK(hostname):
		return bad("hostname", sandbar.Quote(hostname, 80)+"; give 1 to 63 of a-z, A-Z, 0-9 and -")
	case machineID != "" && !machineIDOK(machineID):
		return bad("machine_id", "it must be 32 hexadecimal digits in lower case")
	case boot != "" && !bootIDOK(boot):
		return bad("boot_id", "it must be a UUID in lower case")
	}
	return nil
}

func bootIDOK(s string) bool {
	digits := strings.ReplaceAll(s, "-", "")
	return len(s) == 36 && machineIDOK(digits) && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}

func hostnameOK(s string) bool {
	return s != "" && len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

func machineIDOK(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// plan collects steps. owner and group own what programs must not own.
type plan struct {
	o            HostRootOptions
	owner, group uint32
	prefix       string // path of the future root in the tree being built, "" for its top
	steps        []wire.Mount
}

func (p *plan) add(m wire.Mount) { p.steps = append(p.steps, m) }

func (p *plan) bind(target string, flags uint32) {
	p.add(wire.Mount{Kind: wire.MountBind, Source: target, Target: p.prefix + target, Flags: flags})
}

func (p *plan) bindInner(source, target string, flags uint32) {
	p.add(wire.Mount{Kind: wire.MountBindInner, Source: p.prefix + source, Target: p.prefix + target, Flags: flags})
}

func (p *plan) link(text, target string) {
	p.add(wire.Mount{Kind: wire.MountSymlink, Source: text, Target: p.prefix + target})
}

func (p *plan) mask(target string) {
	p.add(wire.Mount{Kind: wire.MountMask, Target: p.prefix + target})
}

// dir creates a directory that the agent owns or, if private, the programs.
func (p *plan) dir(target string, mode uint32, private bool) {
	uid, gid := p.owner, p.group
	if private {
		uid, gid = p.o.UID, p.o.GID
	}
	p.add(wire.Mount{Kind: wire.MountMkdir, Target: p.prefix + target, Mode: mode, UID: uid, GID: gid})
}

func (p *plan) file(target, text string) {
	p.add(wire.Mount{Kind: wire.MountFile, Source: text, Target: p.prefix + target, Mode: 0o644})
}

// programs binds the host's programs. Directories come before links, so that no link is at a path
// where a directory is needed.
func (p *plan) programs() {
	var links []HostDir
	for _, r := range hostDirs() {
		d, ok := p.o.find(r.path)
		switch {
		case !ok:
		case pointsIntoUsr(d):
			links = append(links, d)
		default:
			p.bind(r.path, readOnly)
		}
	}
	for _, d := range links {
		p.link(d.Link, d.Name)
	}
}

// local makes /usr/local writable, where package managers install for all users, and puts an empty
// directory over the host's configuration there. The host's directories below /usr/local belong to
// ids that the user namespace does not map, and overlayfs cannot copy up such a directory. So the
// upper directory contains, owned by the programs, every directory in which they may create files.
func (p *plan) local() {
	if len(p.o.Local) > 0 {
		p.link("../usr/local", stagingDir+"/lower")
		p.dir(stagingDir+"/work", 0o700, false)
		for _, d := range p.o.Local {
			p.dir(path.Join(stagingDir, "upper", d), 0o755, true)
		}
	}
	var masked []string
	for _, r := range maskedHostDirs() {
		// a link points to a path that has its own row, or to nothing
		if d, ok := p.o.find(r.path); ok && d.Link == "" && !slices.Contains(p.o.Extra, r.path) {
			p.dir(stagingDir+"/"+path.Base(r.path), 0o755, true)
			masked = append(masked, r.path)
		}
	}
	p.restore("", p.o.UID, p.o.GID) // an overlay must not be mounted while its layers change
	if len(p.o.Local) > 0 {
		p.add(wire.Mount{Kind: wire.MountOverlay, Source: stagingDir, Target: "/usr/local", Flags: writable | wire.MountOptional})
	}
	for _, name := range masked {
		p.bindInner(stagingDir+"/"+path.Base(name), name, writable)
	}
}

// LocalDirs returns patterns (path.Match) of the directories in /usr/local that programs can write
// in, if the host has them.
func LocalDirs() []string {
	var out []string
	for _, r := range localRows() {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(r.path, "/usr/local"), "/"))
	}
	return out
}

// localRows are directories in which package managers create files.
func localRows() []row {
	return []row{
		{"/usr/local", "opt, var and whatever else a Makefile's prefix has"},
		{"/usr/local/bin", "commands: pip, npm -g, make install"},
		{"/usr/local/sbin", "as bin"},
		{"/usr/local/games", "as bin, on Debian"},
		{"/usr/local/include", "headers: make install"},
		{"/usr/local/include/python3*", "headers of Python packages"},
		{"/usr/local/lib", "libraries: make install"},
		{"/usr/local/lib64", "as lib, on Fedora"},
		{"/usr/local/lib/pkgconfig", "make install of a library"},
		{"/usr/local/lib/node_modules", "npm -g"},
		{"/usr/local/lib/python3*", "holds the next"},
		{"/usr/local/lib/python3*/*-packages", "pip: dist-packages on Debian, site-packages elsewhere"},
		{"/usr/local/lib64/python3*", "as lib/python3*, on Fedora"},
		{"/usr/local/lib64/python3*/*-packages", "as in lib/python3*, on Fedora"},
		{"/usr/local/libexec", "as bin, of programs that others start"},
		{"/usr/local/share", "data: pip, npm, make install"},
		{"/usr/local/share/applications", "pip: packages with a window"},
		{"/usr/local/share/doc", "make install"},
		{"/usr/local/share/man", "manual pages: pip, npm -g, make install"},
		{"/usr/local/share/man/man[1-8]", "the pages"},
		{"/usr/local/src", "sources that are compiled"},
	}
}

// pointsIntoUsr reports whether d is a link into /usr, which programs see anyway. The target of any
// other link is bound in its place.
func pointsIntoUsr(d HostDir) bool {
	if d.Link == "" {
		return false
	}
	to := d.Link
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(d.Name), to)
	}
	return beneath(path.Clean(to), "/usr")
}

// maskedHostDirs are directories below those of hostDirs that contain configuration instead of
// programs.
func maskedHostDirs() []row {
	return []row{
		{"/usr/local/etc", "settings of locally installed programs; npmrc and gitconfig can contain tokens. The operator can list it in Extra"},
	}
}

// settings builds /etc.
func (p *plan) settings() {
	for _, r := range etcRows() {
		for _, name := range matching(r.path, p.o.Etc) {
			p.bind(name, sealed|wire.MountOptional)
		}
	}
	for _, f := range etcFiles(p.o) {
		p.file(f.path, f.text)
	}
	p.link("../proc/self/mounts", "/etc/mtab")
}

// matching returns the paths of a row of /etc: the path itself, or the host's names that match its
// pattern.
func matching(pattern string, names []string) []string {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}
	}
	var out []string
	for _, n := range names {
		if ok, err := path.Match(pattern, "/etc/"+n); ok && err == nil && !strings.Contains(n, "/") {
			out = append(out, "/etc/"+n)
		}
	}
	slices.Sort(out)
	return out
}

// extra binds the operator's paths, except those that programs see already.
func (p *plan) extra() {
	var shown []string
	for _, d := range p.o.Dirs {
		shown = append(shown, d.Name)
	}
	for _, r := range etcRows() {
		shown = append(shown, matching(r.path, p.o.Etc)...)
	}
	extra := slices.Clone(p.o.Extra)
	slices.Sort(extra) // parents before their contents
	for _, e := range extra {
		if !slices.ContainsFunc(shown, func(s string) bool { return beneath(e, s) }) {
			p.bind(e, readOnly|wire.MountOptional)
			shown = append(shown, e)
		}
	}
}

// emptyDirs creates the empty directories that programs expect. The home directory is a mount
// point, so that programs cannot remove it.
func (p *plan) emptyDirs() {
	for _, name := range []string{"/home", "/opt", "/run", "/srv", "/var", sandbar.DefaultDir} {
		p.dir(name, 0o755, true)
	}
	p.dir("/tmp", 0o1777, false)
	p.bindInner(sandbar.DefaultDir, sandbar.DefaultDir, writable)
	p.link("../tmp", "/var/tmp")
	p.link("../run", "/var/run")
	if p.o.Python != "" {
		p.dir(LinksDir, 0o755, false)
		p.link(p.o.Python, LinksDir+"/python")
	}
}

// devices builds /dev. A bound device keeps the flags of its own mount, and pts and shm are mounts
// of their own.
func (p *plan) devices() {
	if p.o.Omit&Devices != 0 {
		return
	}
	for _, r := range deviceRows() {
		// Read-only protects the host's inode, including its times. Writing to the device works all
		// the same.
		flags := wire.MountReadOnly | wire.MountNoSuid | wire.MountNoExec
		if r.path != "/dev/null" {
			flags |= wire.MountOptional // a daemon in a container may have fewer devices
		}
		p.bind(r.path, flags)
	}
	p.link("/proc/self/fd", "/dev/fd")
	p.link("/proc/self/fd/0", "/dev/stdin")
	p.link("/proc/self/fd/1", "/dev/stdout")
	p.link("/proc/self/fd/2", "/dev/stderr")
	p.add(wire.Mount{Kind: wire.MountDevpts, Target: p.prefix + "/dev/pts", Flags: wire.MountNoSuid | wire.MountNoExec})
	p.link("pts/ptmx", "/dev/ptmx")
}

// deviceRows are the host's devices that programs see.
func deviceRows() []row {
	return []row{
		{"/dev/null", "every program"},
		{"/dev/zero", "dd and old memory allocators"},
		{"/dev/full", "tests of how programs take ENOSPC"},
		{"/dev/random", "older cryptographic libraries"},
		{"/dev/urandom", "BEAM, Ruby and older libraries read it instead of getrandom"},
		{"/dev/tty", "programs that ask the terminal rather than stdin; without one it fails as they expect"},
	}
}

// boundedTmpfs mounts the tmpfs that bounds all that programs write. moreBytes and moreInodes are
// added for what the steps create on it.
func (p *plan) boundedTmpfs(target string, moreBytes, moreInodes int64) {
	size, inodes := p.tmpfsBounds(moreBytes, moreInodes)
	p.add(wire.Mount{Kind: wire.MountTmpfs, Target: target, Flags: writable,
		Size: size, Inodes: inodes, Mode: 0o700, UID: p.owner, GID: p.group})
}

// tmpfsBounds returns the bounds of that tmpfs.
func (p *plan) tmpfsBounds(moreBytes, moreInodes int64) (size, inodes int64) {
	bound := func(n, more, most int64) int64 {
		if n == sandbar.Unlimited || n > most-more {
			return most
		}
		return n + more
	}
	return bound(p.o.Disk, moreBytes, unlimitedSize), bound(p.o.Inodes, moreInodes, unlimitedInodes)
}

// proc mounts the sandbox's /proc, without the entries that programs do not need. It is read-only:
// a process that could write its own oom_score_adj would be killed after its neighbours.
func (p *plan) proc(options string) {
	if p.o.Omit&Proc != 0 {
		return
	}
	p.add(wire.Mount{Kind: wire.MountProc, Source: options, Target: p.prefix + "/proc", Flags: sealed})
	for _, r := range procReadOnly() {
		p.bindInner(r.path, r.path, sealed|wire.MountOptional)
	}
	if p.o.BootID != "" {
		p.add(wire.Mount{Kind: wire.MountReplaceFile, Source: p.o.BootID + "\n", Target: p.prefix + bootID})
	} else {
		p.mask(bootID)
	}
	p.add(wire.Mount{Kind: wire.MountMaskOthers, Source: strings.Join(procNames(), " "), Target: p.prefix + "/proc"})
}

// procReadOnly are the writable parts of /proc that stay visible read-only, regardless of their
// owner. sysrq-trigger is neither here nor in procMasks: the agent's mask refuses writes, and a
// runtime's mask, which is /dev/null, would silently accept a command. Without a mask only the
// host's root can open it, and no process in a user namespace has that uid.
func procReadOnly() []row {
	return []row{
		{"/proc/sys", "kernel settings such as core_pattern; libc, Node and BEAM read a few"},
	}
}

// procShown are the names in /proc, besides the process directories, that programs see. Every other
// name is masked, whatever the host's kernel and modules add. SECURITY.md lists those that reveal
// facts about the host.
func procShown() []row {
	return []row{
		{"/proc/self", "the program itself: /proc/self/fd, maps and exe"},
		{"/proc/thread-self", "the calling thread"},
		{"/proc/mounts", "a link to the sandbox's own mounts"},
		{"/proc/net", "a link to the sandbox's own network"},
		{"/proc/sys", "settings that libc, Node and BEAM read; read-only"},
		{"/proc/sysvipc", "the sandbox's own IPC namespace, for ipcs"},
		{"/proc/cpuinfo", "the processors' features and number: OpenSSL, NumPy, Node's os.cpus"},
		{"/proc/meminfo", "free memory: free; Node and the JVM derive their heap size from it"},
		{"/proc/stat", "times of the processors and of boot: ps, top, Node's os.cpus"},
		{"/proc/loadavg", "os.getloadavg, make -l"},
		{"/proc/uptime", "uptime, ps"},
		{"/proc/version", "the release, which uname reports too"},
		{"/proc/dma", "the same line on every PC"},
		{"/proc/execdomains", "the same line on every Linux"},
	}
}

// procMasks are the entries of /proc, known today, that programs do not see. Container runtimes
// take this list. The agent masks every entry that procShown lacks and that could be opened in the
// sandbox. An entry that the kernel lacks is skipped.
func procMasks() []row {
	return []row{
		{"/proc/acpi", "the host's hardware; older kernels take commands there"},
		{"/proc/allocinfo", "the kernel's memory by source line of the allocation"},
		{"/proc/asound", "the host's sound cards"},
		{"/proc/bootconfig", "as cmdline"},
		{"/proc/buddyinfo", "free pages of the host, a timing side channel"},
		{"/proc/bus", "PCI and USB devices, with their registers"},
		{"/proc/cgroups", "the number of control groups, and so of sandboxes"},
		{"/proc/cmdline", "boot parameters, sometimes with keys"},
		{"/proc/config.gz", "kernel configuration, which helps to select an exploit"},
		{"/proc/consoles", "the host's consoles"},
		{"/proc/crypto", "loaded ciphers and their use counts"},
		{"/proc/devices", "the loaded drivers"},
		{"/proc/device-tree", "the host's hardware"},
		{"/proc/diskstats", "disk activity of neighbours"},
		{"/proc/driver", "state and settings of drivers"},
		{"/proc/dynamic_debug", "settings of the kernel's log"},
		{"/proc/fb", "the host's screens"},
		{"/proc/filesystems", "the loaded file systems"},
		{"/proc/fs", "internals of the host's file systems, by device"},
		{"/proc/interrupts", "interrupt counts, which reveal the timing of keystrokes"},
		{"/proc/iomem", "physical addresses of the kernel"},
		{"/proc/ioports", "I/O ports of the machine"},
		{"/proc/irq", "routing of interrupts"},
		{"/proc/kallsyms", "the kernel's symbols"},
		{"/proc/kcore", "the host's memory"},
		{"/proc/key-users", "as keys"},
		{"/proc/keys", "keyrings are not namespaced"},
		{"/proc/kmsg", "the kernel's log"},
		{"/proc/kpagecgroup", "the cgroup of each physical page"},
		{"/proc/kpagecount", "physical pages, which help row-hammer attacks"},
		{"/proc/kpageflags", "as kpagecount"},
		{"/proc/latency_stats", "wait addresses of other processes"},
		{"/proc/lock_stat", "as lockdep"},
		{"/proc/lockdep", "addresses in the kernel"},
		{"/proc/lockdep_chains", "as lockdep"},
		{"/proc/lockdep_stats", "as lockdep"},
		{"/proc/locks", "file locks, with devices and inodes of the host"},
		{"/proc/mdstat", "the host's disks"},
		{"/proc/misc", "the loaded drivers"},
		{"/proc/modules", "loaded modules and their addresses"},
		{"/proc/mtrr", "memory types; it accepts commands"},
		{"/proc/pagetypeinfo", "the state of the kernel's allocator, which heap exploits need"},
		{"/proc/partitions", "the host's disks"},
		{"/proc/pressure", "stall times of the host's processes: neighbours' load in microseconds"},
		{"/proc/sched_debug", "every process of the host, on older kernels"},
		{"/proc/schedstat", "run times of every processor of the host, in nanoseconds"},
		{"/proc/scsi", "the host's disks; it accepts commands"},
		{"/proc/slabinfo", "as pagetypeinfo"},
		{"/proc/softirqs", "as interrupts"},
		{"/proc/swaps", "the host's disks"},
		{"/proc/timer_list", "kernel addresses and timers of other processes"},
		{"/proc/timer_stats", "as timer_list, on older kernels"},
		{"/proc/tty", "the host's terminals and byte counts of serial lines"},
		{"/proc/vmallocinfo", "addresses in the kernel"},
		{"/proc/vmcore", "the memory of a kernel that crashed"},
		{"/proc/vmstat", "some 200 counters of the host's memory, a timing side channel"},
		{"/proc/xen", "the hypervisor"},
		{"/proc/zoneinfo", "as buddyinfo, by processor"},
		{bootID, "it identifies the host; if the agent builds the root, the sandbox has its own"},
	}
}

// bootID identifies one boot of the kernel.
const bootID = "/proc/sys/kernel/random/boot_id"

// ProcShown reports whether programs see a name of the host's /proc.
func ProcShown(name string) bool {
	return slices.Contains(procNames(), name) || strings.Trim(name, "0123456789") == ""
}

// procNames returns the names of procShown.
func procNames() []string {
	var out []string
	for _, r := range procShown() {
		out = append(out, path.Base(r.path))
	}
	return out
}

// forbiddenExtra are paths that an operator cannot add: they would break the isolation, or hide a
// part of the sandbox.
func forbiddenExtra() []row {
	return []row{
		{"/proc", "it shows the host's processes"},
		{"/sys", "it contains kernel settings"},
		{"/dev", "it contains the host's devices"},
		{"/run", "it contains control sockets of the host"},
		{"/var/run", "it is the old name of /run"},
		{"/boot", "it contains the kernel, its symbols and the boot loader's password"},
		{"/root", "it is the administrator's home"},
		{"/tmp", "it is the sandbox's own"},
		{"/var/tmp", "it is the sandbox's own"},
		{sandbar.DefaultDir, "it is the sandbox's own"},
		{"/etc/mtab", "the sandbox has its own"},
		{"/etc/passwd", "the sandbox has its own"},
		{"/etc/group", "the sandbox has its own"},
		{"/etc/shadow", "it contains password hashes"},
		{"/etc/gshadow", "it contains password hashes"},
		{"/etc/ssh", "it contains the host's keys"},
		{"/etc/ssl/private", "it contains the host's keys"},
		{"/etc/pki/tls/private", "it contains the host's keys"},
		{"/etc/letsencrypt", "it contains the host's keys"},
		{"/etc/sudoers", "it lists who may become root"},
		{"/etc/sudoers.d", "it lists who may become root"},
		{"/etc/docker", "it contains the container engine's keys"},
		{"/etc/kubernetes", "it contains the cluster's keys"},
	}
}

// CheckExtra returns an Invalid error unless p can be one of HostRootOptions.Extra: an absolute,
// clean path that neither equals, contains, nor lies in a path of forbiddenExtra.
func CheckExtra(p string) error {
	bad := func(what string) error {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "paths",
			Message: "host path " + sandbar.Quote(p, 200) + " cannot be shown to sandboxes: " + what,
			Fix:     "name the directory of the programs themselves, such as /opt/python"}
	}
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0):
		return bad("it must be absolute, without . and .., double or trailing slashes")
	case len(p) > 1024:
		return bad("it is longer than 1024 bytes")
	case p == "/":
		return bad("it is the whole host")
	}
	for _, r := range forbiddenExtra() {
		if beneath(p, r.path) {
			return bad(r.path + ": " + r.why)
		}
		if beneath(r.path, p) {
			return bad("it contains " + r.path + ": " + r.why)
		}
	}
	for _, r := range maskedHostDirs() {
		if p != r.path && beneath(p, r.path) {
			return bad("it lies in " + r.path + ", which is shown as a whole or not at all")
		}
	}
	return nil
}

// beneath reports whether p is dir or lies in it. Both must be clean paths.
func beneath(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
