package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// Access rights of Landlock (LANDLOCK_ACCESS_FS_*) and its scopes (LANDLOCK_SCOPE_*), as of
// landlock(7). The agent clears those that the kernel does not know.
const (
	llExecute     uint64 = 1 << 0
	llWriteFile   uint64 = 1 << 1
	llReadFile    uint64 = 1 << 2
	llReadDir     uint64 = 1 << 3
	llRemoveDir   uint64 = 1 << 4
	llRemoveFile  uint64 = 1 << 5
	llMakeChar    uint64 = 1 << 6
	llMakeDir     uint64 = 1 << 7
	llMakeReg     uint64 = 1 << 8
	llMakeSock    uint64 = 1 << 9
	llMakeFIFO    uint64 = 1 << 10
	llMakeBlock   uint64 = 1 << 11
	llMakeSym     uint64 = 1 << 12
	llRefer       uint64 = 1 << 13 // link or rename between directories, ABI 2
	llTruncate    uint64 = 1 << 14 // ABI 3
	llIoctlDev    uint64 = 1 << 15 // ioctl on a device, ABI 5
	llResolveUnix uint64 = 1 << 16 // connect to a UNIX socket by its path, ABI 9

	llEverything = llResolveUnix<<1 - 1

	// Connecting to abstract UNIX sockets, and signalling processes, outside of the domain. ABI 6.
	llScopeAbstractUnix uint64 = 1 << 0
	llScopeSignal       uint64 = 1 << 1
)

// Sets of rights.
const (
	// llReadExec is for programs.
	llReadExec = llExecute | llReadFile | llReadDir
	// llRead is for configuration.
	llRead = llReadFile | llReadDir
	// llDevice includes ioctl, because isatty(3) needs it, and truncation, because a shell
	// truncates the target of a redirection.
	llDevice = llReadFile | llWriteFile | llTruncate | llIoctlDev
	// llWritable is everything except creating devices, which the kernel refuses in a user
	// namespace.
	llWritable = llEverything &^ (llMakeChar | llMakeBlock | llIoctlDev)
)

// Landlock returns the second layer over a root file system. Programs may execute and read the
// paths in programs, do anything in those in writable, and use /dev, /proc and /etc as the rows
// allow. Any other path of the mount namespace is denied.
//
// The rules allow what ordinary programs do in their own directories: rename and link between
// directories, create FIFOs and UNIX sockets, truncate, and execute a file that was just compiled.
// ABI 1 (Linux 5.13 to 5.18) always denies rename and link between directories, with EXDEV, so the
// agent does not use Landlock there.
func Landlock(programs, writable []string) wire.Landlock {
	l := wire.Landlock{HandledFS: llEverything, Scoped: llScopeAbstractUnix | llScopeSignal}
	add := func(path string, access uint64) {
		l.Rules = append(l.Rules, wire.LandlockRule{Path: path, Access: access})
	}
	for _, r := range landlockRows() {
		add(r.path, r.access)
	}
	for _, r := range deviceRows() {
		add(r.path, llDevice)
	}
	for _, p := range programs {
		add(p, llReadExec)
	}
	for _, p := range writable {
		add(p, llWritable)
	}
	return l
}

// RootLandlock is Landlock for the roots of HostRoot and ImageRoot. Programs can create directories
// in the root, and a Landlock rule covers everything beneath its path, so the rule is about "/". It
// still denies creating devices, paths that are not beneath the root, and connections and signals
// out of the sandbox. /usr, /etc and /proc are protected by their read-only mounts.
func RootLandlock() wire.Landlock { return Landlock(nil, []string{"/"}) }

// landlockRow is a right that every root grants beneath a path, and the reason.
type landlockRow struct {
	path   string
	access uint64
	why    string
}

func landlockRows() []landlockRow {
	return []landlockRow{
		{"/", llReadDir, "ls / and path walks; names only, and every entry of the root is the sandbox's own"},
		{"/etc", llRead, "reading settings"},
		{"/dev", llRead, "looking at /dev; the devices have rows of their own"},
		{"/dev/pts", llDevice | llReadDir, "terminals: pty in Python, script, expect"},
		{"/proc", llRead, "reading only: a process that writes its own oom_score_adj is killed for memory after its neighbours. prctl(2) names threads and sets timer slack; debuggers write memory by ptrace(2)"},
	}
}
