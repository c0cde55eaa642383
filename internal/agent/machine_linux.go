package agent

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// setUpMachine is setUp for an agent in a virtual machine. The machine is the boundary, and its
// kernel protects the agent: programs have fewer capabilities, a filter and a cgroup of their own.
func (a *agent) setUpMachine(s *wire.Setup, _ []int) (step string, err error) {
	a.env, a.dir, a.ruleset, a.capabilities = s.Env, s.Dir, -1, s.Capabilities
	unix.Umask(0o022)
	if err := mkdirAll(s.Dir, 0o755); err != nil {
		return "make the directory that paths start from", err
	}
	if err := mountOnItself(s.Dir); err != nil {
		return "mount the directory that paths start from", err
	}
	_ = loopbackUp() // fails on a kernel without network, which is no error
	if a.programs, step, err = makeProgramCgroup(s.PIDs); err != nil {
		return step, err
	}
	go a.programs.relievePressure()
	a.oom.setMachine()
	if step, err := a.startLauncher(); err != nil {
		return step, err
	}
	if step, err := a.startWorkers(); err != nil {
		return step, err
	}
	if step, err := setRlimits(s.Rlimits); err != nil {
		return step, err
	}
	if step, err := a.sealLauncher(s.ProgramSeccomp); err != nil {
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

// changeMachine applies the Setup of a restored machine: the environment, the network and the
// limits of its sandbox.
func (a *agent) changeMachine(s *wire.Setup, _ []int) (step string, err error) {
	a.env = s.Env
	for i := range s.Mounts {
		m := &s.Mounts[i]
		if m.Kind != wire.MountTmpfs {
			return "change mounts", unix.EINVAL
		}
		if err := unix.Mount("", m.Target, "", unix.MS_REMOUNT|mountFlags(m.Flags), tmpfsBounds(m)); err != nil {
			return "change the size of " + m.Target, err
		}
	}
	if step, err := a.network.start(&s.Interface); err != nil {
		return step, err
	}
	if s.Capabilities != 0 {
		a.reduced <- s.Capabilities
		if err := <-a.hasReduced; err != nil {
			return "drop the bounding set", err
		}
	}
	if s.PIDs > 0 {
		if step, err := a.programs.limitProcesses(s.PIDs); err != nil {
			return step, err
		}
	}
	return setRlimits(s.Rlimits)
}

// onClock sets the machine's clock, CLOCK_REALTIME. A frame with an id is answered.
func (a *agent) onClock(f wire.Frame) error {
	var c wire.Clock
	if err := c.Decode(f.Payload); err != nil || !a.wholeMachine {
		return unix.EPROTO
	}
	now := unix.NsecToTimespec(c.Time)
	err := unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	if f.ID == 0 {
		return nil // on failure only the guest's clock is wrong
	}
	failure := wire.OK
	if err != nil {
		failure = wire.FailSetup
	}
	a.reply(f.ID, failure, err, "set the clock", nil)
	return nil
}

// fsUsage reports the machine's memory in use, in bytes: MemTotal minus MemAvailable
// (proc_meminfo(5)).
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

// memoryLine returns a line of /proc/meminfo in bytes, 0 if there is none.
func memoryLine(text []byte, name string) uint64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			kib, _ := cutField(rest)
			return parseNumber(kib) << 10
		}
	}
	return 0
}
