package agent

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rank puts programs before the agent in the kernel's choice of whom to kill
// for memory. Without it a sandbox whose memory is full of files would lose
// its agent, which is often its largest process, and with it everything.
//
// A child inherits the agent's score, so the agent raises its own for the
// moment of the fork; it may lower it again to what it was. The file is opened
// while the agent is still dumpable: afterwards it belongs to the host's root.
type oomScore struct {
	fd               int // -1: there is nothing to rank
	original, raised []byte
}

// guestScore is that of a sandbox that the agent builds: it goes before anything
// that the host did not give a score itself.
const (
	guestOOMScore       = "500"
	guestOOMScoreNumber = 500
)

// programsBefore is how much more a program's score is: a tenth of the memory
// there is.
const programScoreOffset = 100

func openOOMScore() oomScore {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return oomScore{fd: -1}
	}
	return oomScore{fd: fd}
}

// guest gives the agent the score of a guest. It may raise what it has; where
// that is higher it stays.
func (r *oomScore) setGuest() { r.set([]byte(guestOOMScore)) }

// floor is the rank with which a spawner that is root forks agents: it has the score of a
// guest for the moment of the fork. What such a process sets is also the least that its
// children, and theirs, can set, so no program goes before an agent. Elsewhere the least
// is what the daemon was started with; there only a /proc that cannot be written to
// (package policy) keeps programs from lowering their score.
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

// learn reads the score that the agent has.
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

// unprotect takes from this process, which the kernel trusts, what protects the
// daemon from being killed for memory. A score that is inherited could be raised
// by any program later, but then also be lowered again to what was inherited;
// one that is set here is the lowest that agents and their programs can have.
func dropOOMProtection() {
	const file = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(file)
	if score, perr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && perr == nil && score < 0 {
		_ = writeFile(file, "0") // whoever may lower it may raise it
	}
}

// set ignores failure: the order is a courtesy to a sandbox in trouble.
func (r *oomScore) set(score []byte) {
	if r.fd >= 0 && score != nil {
		_, _ = unix.Pwrite(r.fd, score, 0)
	}
}
