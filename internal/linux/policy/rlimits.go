package policy

import (
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// RlimitOptions are the parameters of the resource limits, besides Limits.
type RlimitOptions struct {
	// Enforced tells which mechanism enforces memory and the number of processes. RLIMIT_DATA is
	// set if Memory is EnforcedWatchdog, RLIMIT_NPROC if PIDs is EnforcedRlimit. A cgroup needs
	// neither.
	Enforced sandbar.Enforcements
	// AgentThreads is the number of the agent's threads that the kernel counts towards the
	// programs' RLIMIT_NPROC, 0 if the agent has a user of its own.
	AgentThreads int64
	// Ceiling returns the daemon's hard limit of a resource (RLIMIT_*), which a process in a user
	// namespace cannot exceed. nil means no limit.
	Ceiling func(resource uint32) uint64
}

// RlimitInfinity is RLIM_INFINITY.
const RlimitInfinity = ^uint64(0)

// Resource numbers. They are the same on both architectures.
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

// Resource numbers for other packages.
const (
	RlimitCore  = rlimitCore
	RlimitFiles = rlimitNofile
	RlimitFSize = 1 // of a file
)

const (
	// dataSlack is the distance of RLIMIT_DATA above the memory limit, in bytes. RLIMIT_DATA counts
	// reserved memory, not used memory: a dozen thread stacks of 8 MiB in Node, arenas of 64 MiB in
	// Go, code areas in BEAM.
	dataSlack = 256 << 20
	// maxFiles is the default of fs.nr_open, above which the kernel accepts no RLIMIT_NOFILE.
	maxFiles = 1 << 20
)

// rlimitRow is one limit and its reason.
type rlimitRow struct {
	resource   uint32
	soft, hard uint64
	why        string
}

// Rlimits returns the resource limits of a sandbox. The agent sets them on itself and programs
// inherit them. None exceeds the daemon's own hard limit.
//
// If Files exceeds the daemon's hard limit, the error is Unsupported: a lower limit would break the
// promise.
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

// GVisorRlimits returns the resource limits that gVisor's kernel enforces. The others limit
// resources that it does not have or that it limits to less by itself.
func GVisorRlimits(all []wire.Rlimit) (out []wire.Rlimit) {
	for _, l := range all {
		switch l.Resource {
		case RlimitFSize, rlimitData, rlimitStack, rlimitCore, rlimitNproc, rlimitNofile:
			out = append(out, l)
		}
	}
	return out
}

// Bounds of GVisorSlack, in bytes.
const (
	minSlack = 12 << 20
	maxSlack = 48 << 20
)

// GVisorSlack returns how much more than the limit of programs, in bytes, a sandbox on gVisor may
// hold besides what it holds before the first program. It is nearly a quarter of that limit, for
// growth of gVisor's kernel and for allocations between two checks of the watchdog.
func GVisorSlack(memory int64) int64 { return min(max(memory/4-memory/64, minSlack), maxSlack) }

// TemplateRlimits are the limits of a template's interpreter: those that take effect at a program's
// start, and the one that the seccomp filter forbids to change. Its forks set all limits of their
// sandbox. Ceiling is as in RlimitOptions.
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

// rlimitRows are the limits. Not set on purpose: RLIMIT_FSIZE, since the size of the writable file
// system is the bound and a limit on file length would kill programs that write sparse files;
// RLIMIT_AS, since V8, BEAM and Java reserve terabytes of address space that they never touch;
// RLIMIT_CPU, since the engine's clock and the cgroup's quota bound the time.
func rlimitRows(l sandbar.Limits, o RlimitOptions) []rlimitRow {
	files := uint64(maxFiles)
	if l.Files > 0 {
		files = uint64(l.Files)
	}
	rows := []rlimitRow{
		{rlimitNofile, files, files, "Limits.Files"},
		{rlimitCore, 1, 1, "no core dump. 1 and not 0: where core_pattern is a pipe the kernel ignores 0 and runs the host's handler on the sandbox's memory; 1 means \"no dump\" to it, and is too small for a file"},
		{rlimitStack, 8 << 20, RlimitInfinity, "the usual main stack, whatever the daemon was started with (unlimited changes the layout of memory); a program may raise it, and memory is bounded elsewhere"},
		{rlimitMemlock, 8 << 20, 8 << 20, "what the kernel gives an ordinary user; pinned memory cannot be reclaimed for the neighbours"},
		{rlimitMsgqueue, 409600, 409600, "half of the kernel's default, which counts by user, so that one sandbox cannot use up the daemon's: POSIX message queues hold the kernel's memory"},
		{rlimitSigpending, 4096, 4096, "queued signals and timers hold the kernel's memory; its default grows with the machine"},
		{rlimitNice, 0, 0, "a program cannot raise its priority above the initial one"},
		{rlimitRtprio, 0, 0, "no real-time scheduling class: it would pre-empt every process of the host"},
	}
	if l.PIDs > 0 && o.Enforced.PIDs == sandbar.EnforcedRlimit {
		n := uint64(l.PIDs) + uint64(max(o.AgentThreads, 0))
		rows = append(rows, rlimitRow{rlimitNproc, n, n, "Limits.PIDs where no cgroup counts: since Linux 5.14 the kernel counts it in the sandbox's own user namespace. It is never enforced for the host's root"})
	}
	if l.Memory > 0 && o.Enforced.Memory == sandbar.EnforcedWatchdog {
		n := uint64(l.Memory) + dataSlack
		rows = append(rows, rlimitRow{rlimitData, n, n, "bounds one process between two measurements of the watchdog"})
	}
	return rows
}
