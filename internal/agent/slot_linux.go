package agent

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// slotNamespaces are the namespaces that each slot gets anew. Its sandboxes have all others of
// their own. A slot may replace its network namespace.
const slotNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET

// startSlot starts a slot (package slot), with its first instruction in its cgroups, and maps its
// ids. fds are its socket, its memory and, optionally, a version 2 cgroup.
func (s *spawner) startSlot(r *wire.Spawn, fds []int) (slot spawned, step string, err error) {
	slot.pidfd = -1
	if len(fds) < 2 || !r.Ranged {
		return slot, "start a slot", unix.EINVAL
	}
	p := interp.Process{Flags: slotNamespaces, Cgroup: -1, Socket: fds[0], Memory: fds[1]}
	if len(fds) == 3 {
		p.Cgroup = fds[2]
	}
	slot, step, err = s.inGroups(r, func() (spawned, string, error) { return s.cloneSlot(r, p) })
	if err == nil {
		step, err = s.mapSlot(slot.pid, r)
	}
	if err != nil && slot.pidfd >= 0 {
		_ = unix.PidfdSendSignal(slot.pidfd, unix.SIGKILL, nil, 0)
	}
	return slot, step, err
}

// cloneSlot clones the slot.
func (s *spawner) cloneSlot(r *wire.Spawn, p interp.Process) (slot spawned, step string, err error) {
	slot.pidfd = -1
	back, err := setNamespaceOwner(int(r.Owner))
	if err != nil {
		return slot, "change the owner of namespaces", err
	}
	defer back()
	s.oom.set(s.oom.raised)
	defer s.oom.restore()
	slot.pid, slot.pidfd, err = interp.Start(p)
	return slot, "clone a slot", err
}

// mapSlot gives a slot its ids, and its programs the score of all programs.
func (s *spawner) mapSlot(pid int, r *wire.Spawn) (step string, err error) {
	dir := procDir(pid)
	for _, m := range []struct {
		file string
		ids  wire.IDMap
	}{{"uid_map", r.UIDs}, {"gid_map", r.GIDs}} {
		line := strconv.FormatUint(uint64(m.ids.Inside), 10) + " " + strconv.FormatUint(uint64(m.ids.Outside), 10) + " " + strconv.FormatUint(uint64(m.ids.Size), 10) + "\n"
		if err := writeFile(dir+m.file, line); err != nil {
			return "map the ids of a slot", err
		}
	}
	if score, err := strconv.Atoi(string(s.oom.raised)); err == nil {
		_ = writeFile(dir+"oom_score_adj", strconv.Itoa(min(score+programScoreOffset, 1000))) // only a preference
	}
	return "", nil
}
