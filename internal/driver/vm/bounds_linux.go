package vm

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// bounds are the limits that a machine's kernel enforces and that can change after the restore. A
// snapshot has those of the sandbox for which it was made: to change one costs milliseconds in an
// emulated machine.
type bounds struct {
	PIDs   int64 `json:"pids"`
	Disk   int64 `json:"disk"` // bytes
	Inodes int64 `json:"inodes"`
	Files  int64 `json:"files"`
}

// The limit of open files of a kernel's first process.
const (
	defaultFiles     = 1024
	defaultFilesHard = 4096
)

// boundsOf returns the limits of a sandbox in a machine with this memory, in bytes. Those that the
// sandbox does not set are the kernel's defaults, or higher than what the machine can reach.
func boundsOf(memory int64, l sandbar.Limits) bounds {
	b := bounds{l.PIDs, l.Disk, l.Inodes, max(l.Files, 0)}
	if b.PIDs <= 0 {
		b.PIDs = unboundedPIDs
	}
	if b.Disk <= 0 {
		b.Disk = memory / 2
	}
	if b.Inodes <= 0 {
		b.Inodes = memory / 2 / 4096
	}
	return b
}

// change adds to a Setup what turns old into b. It reports whether there is a change.
func (b bounds) change(old bounds, setup *wire.Setup) bool {
	if b.PIDs != old.PIDs {
		setup.PIDs = b.PIDs
	}
	if b.Disk != old.Disk || b.Inodes != old.Inodes {
		// One tmpfs has all writable directories.
		setup.Mounts = []wire.Mount{{Kind: wire.MountTmpfs, Target: "/tmp", Flags: wire.MountNoSuid | wire.MountNoDev, Size: b.Disk, Inodes: b.Inodes}}
	}
	if b.Files != old.Files {
		r := wire.Rlimit{Resource: policy.RlimitFiles, Soft: uint64(b.Files), Hard: uint64(b.Files)}
		if b.Files == 0 {
			r.Soft, r.Hard = defaultFiles, defaultFilesHard
		}
		setup.Rlimits = []wire.Rlimit{r}
	}
	return b != old
}
