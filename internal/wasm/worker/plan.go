package worker

import (
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// Resources of the Rlimits in a worker's Setup, numbered as in Linux (getrlimit(2)).
const (
	ResourcePIDs  = 6 // RLIMIT_NPROC
	ResourceFiles = 7 // RLIMIT_NOFILE
)

// plan is the configuration of a sandbox. A limit of 0 means none.
type plan struct {
	files  memfs.Limits
	memory int64 // bytes
	pids   int64
	fds    int64 // open files of one program
	env    []string
	dir    string
}

// limits returns the limits of the file system if u is in use before the first program starts.
func (p *plan) limits(u memfs.Usage) memfs.Limits {
	l := p.files
	if l.Bytes > 0 {
		l.Bytes += u.Bytes
	}
	if l.Inodes > 0 {
		l.Inodes += u.Inodes
	}
	return l
}

// newPlan reads a Setup. Its one tmpfs mount limits the files, its Watchdog the memory, its Rlimits
// processes and open files.
func newPlan(s *wire.Setup) *plan {
	p := &plan{memory: s.Watchdog, env: s.Env, dir: s.Dir}
	for _, m := range s.Mounts {
		if m.Kind == wire.MountTmpfs {
			p.files = memfs.Limits{Bytes: m.Size, Inodes: m.Inodes}
		}
	}
	for _, r := range s.Rlimits {
		switch r.Resource {
		case ResourcePIDs:
			p.pids = int64(r.Hard)
		case ResourceFiles:
			p.fds = int64(r.Hard)
		}
	}
	return p
}

// Setup is the part of a wire.Setup that a worker uses.
type Setup struct {
	Memory, Disk, Inodes, PIDs, Files int64 // 0: no limit
	Env                               []string
	Dir                               string
}

// Wire returns the frame's content.
func (s *Setup) Wire() *wire.Setup {
	w := &wire.Setup{Watchdog: s.Memory, Env: s.Env, Dir: s.Dir,
		Mounts: []wire.Mount{{Kind: wire.MountTmpfs, Target: "/", Size: s.Disk, Inodes: s.Inodes}}}
	for resource, limit := range map[uint32]int64{ResourcePIDs: s.PIDs, ResourceFiles: s.Files} {
		if limit > 0 {
			w.Rlimits = append(w.Rlimits, wire.Rlimit{Resource: resource, Soft: uint64(limit), Hard: uint64(limit)})
		}
	}
	return w
}
