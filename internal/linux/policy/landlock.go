package policy

import "github.com/sandbar-dev/sandbar/internal/agent/wire"

// The rights of Landlock over files (LANDLOCK_ACCESS_FS_*), and what it can
// shut in (LANDLOCK_SCOPE_*). The agent clears what the kernel does not know.
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
	llRefer       uint64 = 1 << 13 // link or rename between directories, version 2
	llTruncate    uint64 = 1 << 14 // version 3
	llIoctlDev    uint64 = 1 << 15 // ioctl on a device, version 5
	llResolveUnix uint64 = 1 << 16 // connect to a UNIX socket by its path, version 9

	llEverything = llResolveUnix<<1 - 1

	// Connecting by abstract name to UNIX sockets made outside the domain;
	// signals to processes outside it. Version 6.
	llScopeAbstractUnix uint64 = 1 << 0
	llScopeSignal       uint64 = 1 << 1
)

// What is granted where.
const (
	// llPrograms: files that are run and read.
	llReadExec = llExecute | llReadFile | llReadDir
	// llSettings: files that are read.
	llRead = llReadFile | llReadDir
	// llDevice: isatty asks every device with an ioctl, and a shell truncates
	// what it writes to.
	llDevice = llReadFile | llWriteFile | llTruncate | llIoctlDev
	// llOwn: everything but devices, which a program cannot make.
	llWritable = llEverything &^ (llMakeChar | llMakeBlock | llIoctlDev)
)

// Landlock returns the second layer over a root file system: programs may run
// and read what is in programs, do anything to what is in writable, and use
// /dev, /proc and /etc as they must, each a row here. Whatever else should turn
// up in the mount namespace stays shut.
//
// The rules allow what ordinary programs do in their own directories: rename
// and link across them, FIFOs, UNIX sockets, truncation, running what was just
// compiled. Version 1 of Landlock (Linux 5.13 to 5.18) knows no right to rename
// or link between directories and refuses it always, with EXDEV; who cannot
// have that must do without Landlock there.
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

// RootLandlock is Landlock for the roots that HostRoot and ImageRoot make.
// Programs can make directories in the root, and a rule about a directory is one
// about all below it. So what is left to forbid is devices, what is not below the
// root, and what leads out of the sandbox; that /usr, /etc and /proc stay as they
// are is what their mounts are read-only for.
func RootLandlock() wire.Landlock { return Landlock(nil, []string{"/"}) }

// landlockRow is what is granted beneath a path on every root, and why.
type landlockRow struct {
	path   string
	access uint64
	why    string
}

func landlockRows() []landlockRow {
	return []landlockRow{
		{"/", llReadDir, "ls /, and walking down from there; names only, and the root holds none but ours"},
		{"/etc", llRead, "reading settings"},
		{"/dev", llRead, "looking at /dev; the devices have rows of their own"},
		{"/dev/pts", llDevice | llReadDir, "terminals: pty in Python, script, expect"},
		{"/proc", llRead, "reading only: a process that writes its own oom_score_adj is killed for memory after its neighbours. prctl(2) names threads and sets timer slack; debuggers write memory by ptrace(2)"},
	}
}
