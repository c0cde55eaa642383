package agent

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomScore makes the kernel's OOM killer prefer programs over the agent (oom_score_adj,
// proc_pid_oom_score_adj(5)). Without it a sandbox whose tmpfs is full would lose its agent, often
// the largest process, and so everything.
//
// A child inherits the score, so the agent raises its own during the fork and then restores it: a
// process may always lower its score to the value it started with. The file is opened while the
// agent is still dumpable; afterwards it belongs to the host's root.
type oomScore struct {
	fd               int // -1 if the file cannot be opened
	original, raised []byte
}

// guestOOMScore is the score of every sandbox that the agent builds. The kernel kills it before any
// host process with a default score.
const (
	guestOOMScore       = "500"
	guestOOMScoreNumber = 500
)

// programScoreOffset is added to the score of programs: 100 counts as much as 10 % of the memory.
const programScoreOffset = 100

func openOOMScore() oomScore {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return oomScore{fd: -1}
	}
	return oomScore{fd: fd}
}

// setGuest gives the agent guestOOMScore. It may only raise its score, so a higher one stays.
func (r *oomScore) setGuest() { r.set([]byte(guestOOMScore)) }

// setMachine makes the agent of a machine the last process that the machine's kernel kills.
// Programs start at 0 and cannot go below it.
func (r *oomScore) setMachine() {
	r.original, r.raised = []byte("-1000"), []byte("0")
	r.restore()
}

// spawnerOOMScore returns the score that a spawner with root rights sets while it forks an agent. A
// score that a process with CAP_SYS_RESOURCE sets is also the minimum that its descendants can set
// (oom_score_adj_min), so no program can set its score below that of its agent. Without root that
// minimum is the daemon's own score, and only the read-only /proc (package policy) keeps programs
// from lowering theirs.
func spawnerOOMScore() oomScore {
	if os.Geteuid() != 0 {
		return oomScore{fd: -1}
	}
	r := openOOMScore()
	r.read()
	if own, err := strconv.Atoi(string(r.original)); err != nil || own >= guestOOMScoreNumber {
		r.raised = r.original
	} else {
		r.raised = []byte(guestOOMScore)
	}
	return r
}

// read reads the agent's current score.
func (r *oomScore) read() {
	var buf [16]byte
	n, err := unix.Pread(r.fd, buf[:], 0)
	if err != nil || n <= 1 {
		return
	}
	score, err := strconv.Atoi(string(buf[:n-1]))
	if err != nil {
		return
	}
	r.original = strconv.AppendInt(nil, int64(score), 10)
	r.raised = strconv.AppendInt(nil, int64(min(score+programScoreOffset, 1000)), 10)
}

func (r *oomScore) raise() {
	if r.original == nil && r.fd >= 0 {
		r.read()
	}
	r.set(r.raised)
}

func (r *oomScore) restore() { r.set(r.original) }

// dropOOMProtection resets a negative score of this process, with which a service manager may
// protect the daemon. The spawner has CAP_SYS_RESOURCE, so its value becomes the minimum of agents
// and their programs; an inherited negative score would let any program lower its own to that.
func dropOOMProtection() {
	const file = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(file)
	if score, perr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && perr == nil && score < 0 {
		_ = writeFile(file, "0") // a process that may lower it may also raise it
	}
}

// set ignores errors: the score is only a preference.
func (r *oomScore) set(score []byte) {
	if r.fd >= 0 && score != nil {
		_, _ = unix.Pwrite(r.fd, score, 0)
	}
}
