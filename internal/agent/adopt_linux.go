package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The host can put a running process into the sandbox, as a child of the agent: a fork of a
// template's interpreter. AdoptAttrs tells the host what the process must take on to equal one that
// the launcher forked. Adopt verifies the process from /proc and registers it; it refuses a process
// that has kept any right.

// onAdoptAttrs answers with the next tag, the limits and the Landlock ruleset. It may wait for the
// tag, so a worker runs it.
func (a *agent) onAdoptAttrs(f wire.Frame) error {
	if !a.ready || len(f.Payload) != 0 {
		return unix.EPROTO
	}
	a.submit(f.ID, func() {
		if !a.conn.passesFDs && a.ruleset >= 0 {
			a.reply(f.ID, wire.FailProtocol, unix.EOPNOTSUPP, "", nil)
			return
		}
		tag, more := <-a.tags.next
		if !more {
			a.reply(f.ID, wire.FailExec, unix.EOVERFLOW, "", nil)
			return
		}
		a.tags.used <- struct{}{}
		attrs := wire.AdoptAttrs{Tag: tag, Resource: uint32(a.tags.resource), Rlimits: a.rlimits}
		var fds []int
		if a.ruleset >= 0 {
			fds = append(fds, a.ruleset)
		}
		a.reply(f.ID, wire.OK, nil, "", attrs.Append(nil), fds...)
	})
	return nil
}

// onAdopt registers a process under the frame's id.
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

// submit queues a request for a worker, or answers EAGAIN if the queue is full.
func (a *agent) submit(id uint32, f func()) {
	select {
	case a.jobs <- f:
	default:
		a.reply(id, wire.FailProtocol, unix.EAGAIN, "", nil)
	}
}

// adopt verifies the process and registers it. It replies under the lock, so that Exited cannot
// overtake the Reply. text names the property that does not match.
func (a *agent) adopt(id uint32, w wire.Adopt) (text string, err error) {
	pid := int(w.PID)
	if text := a.adoptionMismatch(pid, w.Tag); text != "" {
		return text, unix.EPERM
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byPID[pid] != nil || a.byID[id] != nil {
		return "it is already registered", unix.EEXIST
	}
	// If the reaper has already collected the process, waitid(2) fails; if not, the reaper blocks
	// on the lock and reports it afterwards.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return "it is not a child of the agent", err
	}
	p := &process{id: id, pid: pid}
	a.byPID[pid], a.byID[id] = p, p
	a.notifyReaper()
	started := wire.Started(w)
	a.reply(id, wire.OK, nil, "", started.Append(nil))
	return "", nil
}

// adoptionMismatch returns how a process differs from one that the launcher forked, "" if it does
// not.
func (a *agent) adoptionMismatch(pid int, tag uint64) string {
	limits, err := readVisibleProc(pid, "limits")
	if err != nil {
		return "it does not exist"
	}
	if parseTag(limits, a.killer.limitName) != tag {
		return "its tag differs"
	}
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		return "it does not lead a process group"
	}
	status, err := readVisibleProc(pid, "status")
	if err != nil {
		return "it does not exist"
	}
	return a.statusMismatch(status)
}

// statusMismatch is adoptionMismatch for the text of /proc/PID/status (proc_pid_status(5)).
func (a *agent) statusMismatch(status []byte) string {
	if value, ok := statusField(status, "PPid"); !ok || value != strconv.Itoa(os.Getpid()) {
		return "its PPid differs"
	}
	return ProgramMismatch(status, a.uid, a.gid, a.separateUser)
}

// ProgramMismatch returns how the text of a process's /proc/PID/status differs from that of a
// program with a uid and gid, "" if it does not. noGroups: programs have no supplementary groups.
func ProgramMismatch(status []byte, user, group uint32, noGroups bool) string {
	uid, gid := strconv.Itoa(int(user)), strconv.Itoa(int(group))
	wanted := [][2]string{
		{"TracerPid", "0"},
		{"Uid", uid + "\t" + uid + "\t" + uid + "\t" + uid}, {"Gid", gid + "\t" + gid + "\t" + gid + "\t" + gid},
		{"NoNewPrivs", "1"}, {"Seccomp", "2"},
	}
	if noGroups {
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
	// At least the two filters of the agent's own programs. Linux before 5.9 has no such line.
	if n, ok := statusField(status, "Seccomp_filters"); ok && parseNumber([]byte(n)) < programFilters {
		return "it lacks a seccomp filter"
	}
	return ""
}

// programFilters is the number of seccomp filters of a program: Setup.Seccomp and
// Setup.ProgramSeccomp.
const programFilters = 2

// statusField returns the value of a line of /proc/PID/status.
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
