package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A program can come into the sandbox without the agent's having started it: the
// host puts a process that is up already there. Lend tells what it must take on
// to be like one that the launcher has forked. Adopt makes it one of the agent's,
// after it has been looked at: nothing is taken that has kept a right.

// onLend answers with the next mark, the limits and the ruleset. It may have to
// wait for the mark, so a worker does it.
func (a *agent) onLend(f wire.Frame) error {
	if !a.ready || len(f.Payload) != 0 {
		return unix.EPROTO
	}
	a.submit(f.ID, func() {
		if !a.conn.passesFDs && a.ruleset >= 0 {
			a.reply(f.ID, wire.FailProtocol, unix.EOPNOTSUPP, "", nil)
			return
		}
		mark, more := <-a.tags.next
		if !more {
			a.reply(f.ID, wire.FailExec, unix.EOVERFLOW, "", nil)
			return
		}
		a.tags.used <- struct{}{}
		lent := wire.AdoptAttrs{Tag: mark, Resource: uint32(a.tags.resource), Rlimits: a.rlimits}
		var fds []int
		if a.ruleset >= 0 {
			fds = append(fds, a.ruleset)
		}
		a.reply(f.ID, wire.OK, nil, "", lent.Append(nil), fds...)
	})
	return nil
}

// onAdopt takes a program on, under the frame's id.
func (a *agent) onAdopt(f wire.Frame) error {
	var w wire.Adopt
	if err := w.Decode(f.Payload); err != nil || !a.ready || w.PID < 2 || w.Tag == 0 {
		return unix.EPROTO
	}
	a.submit(f.ID, func() {
		if text, err := a.adopt(f.ID, w); err != nil {
			a.reply(f.ID, wire.FailExec, err, text, nil)
			return
		}
		a.watch.start(a)
	})
	return nil
}

// work has a worker do a request, or answers that too many wait.
func (a *agent) submit(id uint32, f func()) {
	select {
	case a.jobs <- f:
	default:
		a.reply(id, wire.FailProtocol, unix.EAGAIN, "", nil)
	}
}

// adopt checks the process and enters it. The answer is sent under the lock, so
// that Exited cannot overtake it. What is wrong with the process is in text.
func (a *agent) adopt(id uint32, w wire.Adopt) (text string, err error) {
	pid := int(w.PID)
	if text := a.adoptionMismatch(pid, w.Tag); text != "" {
		return text, unix.EPERM
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byPID[pid] != nil || a.byID[id] != nil {
		return "it is there already", unix.EEXIST
	}
	// The reaper, which may have collected it already, needs the lock to report it.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return "it is no child of the agent", err
	}
	p := &process{id: id, pid: pid}
	a.byPID[pid], a.byID[id] = p, p
	a.notifyReaper()
	started := wire.Started(w)
	a.reply(id, wire.OK, nil, "", started.Append(nil))
	return "", nil
}

// unlike tells what distinguishes a process from one that the launcher has
// forked; "" if nothing does.
func (a *agent) adoptionMismatch(pid int, mark uint64) string {
	limits, err := readVisibleProc(pid, "limits")
	if err != nil {
		return "it is not there"
	}
	if parseTag(limits, a.killer.limitName) != mark {
		return "its mark is another"
	}
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		return "it leads no process group"
	}
	status, err := readVisibleProc(pid, "status")
	if err != nil {
		return "it is not there"
	}
	return a.statusMismatch(status)
}

// unlikeStatus is unlike for the text of /proc/PID/status.
func (a *agent) statusMismatch(status []byte) string {
	uid, gid := strconv.Itoa(int(a.uid)), strconv.Itoa(int(a.gid))
	wanted := [][2]string{
		{"PPid", strconv.Itoa(os.Getpid())}, {"TracerPid", "0"},
		{"Uid", uid + "\t" + uid + "\t" + uid + "\t" + uid}, {"Gid", gid + "\t" + gid + "\t" + gid + "\t" + gid},
		{"NoNewPrivs", "1"}, {"Seccomp", "2"},
	}
	if a.separateUser {
		wanted = append(wanted, [2]string{"Groups", ""})
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		wanted = append(wanted, [2]string{set, "0000000000000000"})
	}
	for _, w := range wanted {
		if value, ok := statusField(status, w[0]); !ok || value != w[1] {
			return "its " + w[0] + " differs"
		}
	}
	// The two filters that the agent's own programs have, at least.
	if n, ok := statusField(status, "Seccomp_filters"); ok && parseNumber([]byte(n)) < programFilters {
		return "it lacks a filter of system calls"
	}
	return ""
}

// programFilters is how many filters a program has: that of all and that of programs.
const programFilters = 2

// statusField finds a line of /proc/PID/status.
func statusField(status []byte, name string) (value string, ok bool) {
	i := bytes.Index(status, []byte("\n"+name+":"))
	if i < 0 {
		return "", false
	}
	line := status[i+len(name)+2:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	return string(bytes.TrimSpace(line)), true
}
