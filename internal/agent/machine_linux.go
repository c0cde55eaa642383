package agent

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// setUpMachine is setUp of an agent in a machine that is the sandbox: the
// boundary is around the machine, and within it nothing is taken from programs.
func (a *agent) setUpMachine(s *wire.Setup, _ []int) (step string, err error) {
	a.env, a.dir, a.ruleset = s.Env, s.Dir, -1
	unix.Umask(0o022)
	if err := mkdirAll(s.Dir, 0o755); err != nil {
		return "make the directory that paths start from", err
	}
	_ = loopbackUp() // of a kernel that has a network
	if step, err := a.startLauncher(); err != nil {
		return step, err
	}
	if step, err := a.startWorkers(); err != nil {
		return step, err
	}
	if step, err := setRlimits(s.Rlimits); err != nil {
		return step, err
	}
	if a.tags, err = newProcessTags(unix.RLIMIT_LOCKS); err != nil {
		return "number programs by a limit", err
	}
	if a.proc, err = openProcfs(); err != nil {
		return "open /proc", err
	}
	a.killer.setResource(unix.RLIMIT_LOCKS)
	go a.killer.run()
	return "", nil
}

// onClock sets the machine's clock.
func (a *agent) onClock(f wire.Frame) error {
	var c wire.Clock
	if err := c.Decode(f.Payload); err != nil || !a.wholeMachine {
		return unix.EPROTO
	}
	now := unix.NsecToTimespec(c.Time)
	_ = unix.ClockSettime(unix.CLOCK_REALTIME, &now) // a machine that does not allow it goes wrong, and nothing else does
	return nil
}

// fsUsage tells how much memory of the machine is in use.
func (a *agent) fsUsage() ([]byte, error) {
	if !a.wholeMachine {
		return nil, unix.EOPNOTSUPP
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	used := memoryLine(b, "MemTotal:") - min(memoryLine(b, "MemAvailable:"), memoryLine(b, "MemTotal:"))
	return wire.AppendFileInfos(nil, []wire.FileInfo{{Name: "memory", Size: used}}), nil
}

// memoryLine is a line of /proc/meminfo, in bytes; 0 if it is not there.
func memoryLine(text []byte, name string) uint64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			kib, _ := cutField(rest)
			return parseNumber(kib) << 10
		}
	}
	return 0
}
