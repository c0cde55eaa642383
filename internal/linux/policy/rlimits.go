package policy

import (
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// RlimitOptions are what the resource limits of a sandbox's processes depend on
// beyond its Limits.
type RlimitOptions struct {
	// Held tells how the driver holds memory and the number of processes.
	// RLIMIT_DATA is set where Memory is EnforcedWatchdog, RLIMIT_NPROC where
	// PIDs is EnforcedRlimit; a cgroup does both better.
	Enforced sandbar.Enforcements
	// AgentThreads is how many threads of the agent count as the programs'
	// user, and so towards RLIMIT_NPROC: 0 where the agent has an id of its own.
	AgentThreads int64
	// Ceiling is the hard limit of the daemon for a resource (RLIMIT_*), which
	// nothing in a user namespace can raise; nil means that there is none.
	Ceiling func(resource uint32) uint64
}

// RlimitInfinity is the kernel's number for no limit.
const RlimitInfinity = ^uint64(0)

// The numbers of resources; they are the same on both architectures.
const (
	rlimitData       = 2
	rlimitStack      = 3
	rlimitNproc      = 6
	rlimitNofile     = 7
	rlimitMemlock    = 8
	rlimitSigpending = 11
	rlimitMsgqueue   = 12
	rlimitNice       = 13
	rlimitRtprio     = 14
)

const (
	// dataSlack is how far RLIMIT_DATA lies above the memory limit. It counts
	// what is reserved, not what is used: a dozen thread stacks of 8 MiB in
	// Node, arenas of 64 MiB in Go, code areas in BEAM.
	dataSlack = 256 << 20
	// maxFiles is the kernel's default for fs.nr_open, over which it accepts
	// no RLIMIT_NOFILE.
	maxFiles = 1 << 20
)

// rlimitRow is one limit, and why.
type rlimitRow struct {
	resource   uint32
	soft, hard uint64
	why        string
}

// Rlimits returns the resource limits of a sandbox. They are set on the agent,
// inherited by programs, and lie at or under the daemon's own hard limits.
//
// Files over the daemon's hard limit is an Unsupported error: a program would
// otherwise have less than it was promised.
func Rlimits(l sandbar.Limits, o RlimitOptions) ([]wire.Rlimit, error) {
	ceiling := o.Ceiling
	if ceiling == nil {
		ceiling = func(uint32) uint64 { return RlimitInfinity }
	}
	if most := ceiling(rlimitNofile); l.Files > 0 && uint64(l.Files) > most {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "files",
			Message: strconv.FormatInt(l.Files, 10) + " open files were asked for; the daemon's own hard limit allows " + strconv.FormatUint(most, 10),
			Fix:     "ask for fewer, or start the daemon with a higher limit (ulimit -Hn, LimitNOFILE in systemd)"}
	}
	var out []wire.Rlimit
	for _, r := range rlimitRows(l, o) {
		most := ceiling(r.resource)
		out = append(out, wire.Rlimit{Resource: r.resource, Soft: min(r.soft, most), Hard: min(r.hard, most)})
	}
	return out, nil
}

// TemplateRlimits are the limits of an interpreter that is copied into sandboxes,
// whose copies take on those of their sandbox: what a program has from its start,
// and what its filter keeps anybody from setting. Ceiling is as in RlimitOptions.
func TemplateRlimits(ceiling func(resource uint32) uint64) []wire.Rlimit {
	var out []wire.Rlimit
	for _, r := range rlimitRows(sandbar.Limits{}, RlimitOptions{}) {
		if r.resource == rlimitCore || r.resource == rlimitStack {
			most := ceiling(r.resource)
			out = append(out, wire.Rlimit{Resource: r.resource, Soft: min(r.soft, most), Hard: min(r.hard, most)})
		}
	}
	return out
}

// rlimitRows are the limits. RLIMIT_FSIZE is not among them: the size of the
// one writable file system is the bound, and a limit on a file's length would
// kill programs that make sparse files. Nor are RLIMIT_AS, which counts address
// space that V8, BEAM and Java reserve by the terabyte and never touch, and
// RLIMIT_CPU: the engine's clock and the cgroup's quota hold the time.
func rlimitRows(l sandbar.Limits, o RlimitOptions) []rlimitRow {
	files := uint64(maxFiles)
	if l.Files > 0 {
		files = uint64(l.Files)
	}
	rows := []rlimitRow{
		{rlimitNofile, files, files, "Limits.Files"},
		{rlimitCore, 1, 1, "no core dump. 1 and not 0: where core_pattern is a pipe the kernel ignores 0 and runs the host's handler on the sandbox's memory; 1 is its mark for \"do not\", and too small for a file"},
		{rlimitStack, 8 << 20, RlimitInfinity, "the usual main stack, whatever the daemon was started with (unlimited changes the layout of memory); a program may raise it, and memory is bounded elsewhere"},
		{rlimitMemlock, 8 << 20, 8 << 20, "what the kernel gives an ordinary user; pinned memory cannot be reclaimed for the neighbours"},
		{rlimitMsgqueue, 409600, 409600, "half of the kernel's default, which counts by user, so that one sandbox cannot use up the daemon's: POSIX message queues hold the kernel's memory"},
		{rlimitSigpending, 4096, 4096, "queued signals and timers hold the kernel's memory; its default grows with the machine"},
		{rlimitNice, 0, 0, "nobody becomes less nice than he was started"},
		{rlimitRtprio, 0, 0, "no real-time class: it would run before everything on the host"},
	}
	if l.PIDs > 0 && o.Enforced.PIDs == sandbar.EnforcedRlimit {
		n := uint64(l.PIDs) + uint64(max(o.AgentThreads, 0))
		rows = append(rows, rlimitRow{rlimitNproc, n, n, "Limits.PIDs where no cgroup counts: since Linux 5.14 it is counted in the sandbox's own user namespace. The kernel never holds it against the host's root"})
	}
	if l.Memory > 0 && o.Enforced.Memory == sandbar.EnforcedWatchdog {
		n := uint64(l.Memory) + dataSlack
		rows = append(rows, rlimitRow{rlimitData, n, n, "what one process can take between two looks of the watchdog"})
	}
	return rows
}
