package agent

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// hunter ends all that carries a mark. There is one, whose memory and whose
// thread are there before any program runs, and it hunts for all who ask at
// the same time.
//
// A look lists the processes, the newest first, and kills at once what carries
// a mark that is targets. What is targets may be forking all the time, so one
// empty look proves nothing: a hunt is over after two looks in a row that
// found nothing and saw every process they had listed, alive, or zombies already
// in the look before. What has died since may have forked since.
//
// Where new processes with the mark keep turning up, or processes keep dying
// before they can be looked at, the next look is taken with the sandbox
// standing still: the kernel sends SIGSTOP to all processes in one
// step, which no fork can slip through. The others then go on; they notice no
// more of it than of a shell's job control.
type treeKiller struct {
	a        *agent
	requests chan killTarget
	buf      [8 << 10]byte // of files of /proc
	// first: the agent is PID 1, and all processes are its own to stop.
	isInit    bool
	resource  int             // whose hard limit is the mark
	limitName string          // what that is called in /proc
	killed    map[string]bool // the processes killed in the last look
	zombies   map[string]bool // those it found zombies
}

// quarry is one mark that is targets.
type killTarget struct {
	id         uint32 // of the request
	tag        uint64
	deadline   time.Time // when to give up
	alive      bool      // in the last look
	emptyScans int       // looks in a row that found nothing
}

const (
	// huntLimit is how long a hunt goes on. What still runs then cannot be
	// killed: it is in the kernel and does not come back.
	killTimeout = 3 * time.Second
	// stubborn is after how many looks that settled nothing the sandbox is
	// made to stand still.
	stopAfterScans = 6
	// huntPause is the first pause between looks, in which what was killed
	// ends; it doubles up to maxHuntPause.
	scanPause    = 100 * time.Microsecond
	maxScanPause = 5 * time.Millisecond
)

// onKill hands a request to the hunter, which answers it.
func (a *agent) onKill(f wire.Frame) error {
	var k wire.Kill
	if err := k.Decode(f.Payload); err != nil || !a.ready || k.Tag == 0 {
		return unix.EPROTO
	}
	select {
	case a.killer.requests <- killTarget{id: f.ID, tag: k.Tag, deadline: time.Now().Add(killTimeout)}:
	default:
		a.reply(f.ID, wire.FailKill, unix.EAGAIN, "", nil)
	}
	return nil
}

func newTreeKiller(a *agent) *treeKiller {
	return &treeKiller{a: a, requests: make(chan killTarget, backlog), isInit: unix.Getpid() == 1}
}

// track tells which resource has the marks.
func (h *treeKiller) setResource(resource uint32) {
	h.resource, h.limitName = int(resource), tagLimitName(resource)
}

// run hunts whenever somebody asks.
func (h *treeKiller) run() {
	for q := range h.requests {
		h.killAll([]killTarget{q})
	}
}

// hunt ends when nothing is targets any more. Who asks meanwhile joins.
func (h *treeKiller) killAll(targets []killTarget) {
	h.killed, h.zombies = nil, nil
	pause, unsettled := scanPause, 0
	for len(targets) > 0 {
		targets = h.addRequests(targets)
		var s scanResult
		if unsettled >= stopAfterScans && h.isInit { // elsewhere "all processes" are not ours alone
			s = h.scanStopped(targets)
			unsettled = 0
		} else {
			s = h.scan(targets)
		}
		if s.newProcess || s.raced && !s.killed {
			unsettled++
		}
		targets = h.answerFinished(targets, s)
		if s.killed || s.unreadable {
			time.Sleep(pause)
			pause = min(2*pause, maxScanPause)
		}
	}
}

// join adds what has been asked for meanwhile.
func (h *treeKiller) addRequests(targets []killTarget) []killTarget {
	for {
		select {
		case q := <-h.requests:
			targets = append(targets, q)
		default:
			return targets
		}
	}
}

// sight is what a look saw.
type scanResult struct {
	killed     bool // something that is targets
	newProcess bool // something that was not killed before
	raced      bool // something has died that was alive when it was listed
	unreadable bool // something could not be looked at, or not be listed
	stopped    bool // nothing could be born meanwhile
}

// settle answers those whose hunt is over and returns the others.
func (h *treeKiller) answerFinished(targets []killTarget, s scanResult) []killTarget {
	left := targets[:0]
	for _, q := range targets {
		switch {
		case q.alive || s.unreadable:
			q.emptyScans = 0
		case s.stopped:
			q.emptyScans = 2
		case !s.raced:
			q.emptyScans++
		}
		switch {
		case q.emptyScans >= 2:
			h.a.reply(q.id, wire.OK, nil, "", nil)
		case time.Now().After(q.deadline):
			h.a.reply(q.id, wire.FailKill, unix.EBUSY, "", nil)
		default:
			left = append(left, q)
		}
	}
	return left
}

// look kills what carries a targets mark.
func (h *treeKiller) scan(targets []killTarget) (s scanResult) {
	killed, zombies := map[string]bool{}, map[string]bool{}
	for i := range targets {
		targets[i].alive = false
	}
	pids, err := h.a.proc.pids()
	s.unreadable = err != nil
	for i := len(pids) - 1; i >= 0; i-- { // the kernel lists the newest last
		pid := pids[i]
		switch h.killIfTarget(pid, targets) {
		case exited:
			s.raced = true
		case unknownTag:
			s.unreadable = true
		case zombie:
			zombies[pid] = true
			s.raced = s.raced || !h.zombies[pid]
		case wasKilled:
			s.killed = true
			s.newProcess = s.newProcess || !h.killed[pid]
			killed[pid] = true
		}
	}
	h.killed, h.zombies = killed, zombies
	return s
}

// lookStill is look with all processes stopped.
func (h *treeKiller) scanStopped(targets []killTarget) scanResult {
	stopped := map[string]bool{} // by somebody else, before
	pids, err := h.a.proc.pids()
	if err != nil {
		return h.scan(targets)
	}
	for _, pid := range pids {
		stopped[pid] = h.state(pid) == 'T'
	}
	unix.Kill(-1, unix.SIGSTOP) // spares PID 1, the caller
	s := h.scan(targets)
	s.stopped = true
	if pids, err = h.a.proc.pids(); err != nil {
		unix.Kill(-1, unix.SIGCONT) // rather one too many than one that stands still for good
	}
	for _, pid := range pids {
		if !stopped[pid] { // to the dying it does nothing
			unix.Kill(int(parseNumber([]byte(pid))), unix.SIGCONT)
		}
	}
	return s
}

// fate is what has become of a process that was listed.
type scanOutcome int

const (
	notTarget scanOutcome = iota // it carries no targets mark
	wasKilled
	zombie     // it is zombies, carries a targets mark and has not been waited for
	exited     // it is zombies, and its mark cannot be known any more
	unknownTag // it may live, and its mark cannot be known
)

// shoot kills a process if it carries a targets mark and is not zombies already.
func (h *treeKiller) killIfTarget(pid string, targets []killTarget) scanOutcome {
	dir, err := h.a.proc.open(pid)
	if hasEnded(err) {
		return exited
	}
	if err != nil {
		return h.killByPidfd(pid, targets)
	}
	defer unix.Close(dir)
	limits, err := readProc(dir, "limits", h.buf[:])
	if hasEnded(err) || err == nil && len(limits) == 0 {
		return exited
	}
	if err != nil {
		return h.killByPidfd(pid, targets)
	}
	mark := parseTag(limits, h.limitName)
	if !isTarget(targets, mark) {
		return notTarget
	}
	stat, err := readProc(dir, "stat", h.buf[:])
	if hasEnded(err) || err == nil && isDead(stat) {
		return zombie
	}
	return killTagged(dir, targets, mark)
}

// shootUnseen is shoot without /proc, where that refuses: the kernel tells everybody
// of the same user another's limits. A pidfd holds on to the process, so that the
// limits are known to be its own.
func (h *treeKiller) killByPidfd(pid string, targets []killTarget) scanOutcome {
	n := int(parseNumber([]byte(pid)))
	fd, err := unix.PidfdOpen(n, 0)
	if err == unix.ESRCH {
		return exited
	}
	if err != nil {
		return unknownTag
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	err = unix.Prlimit(n, h.resource, nil, &limit)
	if err == unix.ESRCH || unix.PidfdSendSignal(fd, 0, nil, 0) == unix.ESRCH {
		return exited // and the limits may be those of another that got the number
	}
	if err != nil {
		return unknownTag
	}
	if !isTarget(targets, limit.Max) {
		return notTarget
	}
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(ended, 0); err == nil && n == 1 && ended[0].Revents&unix.POLLIN != 0 {
		return zombie
	}
	return killTagged(fd, targets, limit.Max)
}

// marked reports whether a mark is targets.
func isTarget(targets []killTarget, mark uint64) bool {
	return slices.ContainsFunc(targets, func(q killTarget) bool { return q.tag == mark })
}

// kill kills the process that a descriptor means. Only a later look shows whether
// it has ended.
func killTagged(fd int, targets []killTarget, mark uint64) scanOutcome {
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for i := range targets { // more than one may have asked for it
		targets[i].alive = targets[i].alive || targets[i].tag == mark
	}
	return wasKilled
}

// state is the letter of a process's state in /proc; 0 when it is not known.
func (h *treeKiller) state(pid string) byte {
	dir, err := h.a.proc.open(pid)
	if err != nil {
		return 0
	}
	defer unix.Close(dir)
	stat, _ := readProc(dir, "stat", h.buf[:])
	state, _ := parseStat(stat)
	return state
}

// isDead reports whether the process of a stat file only waits to be reaped. A
// first thread that has ended while others go on looks the same but for their
// number.
func isDead(stat []byte) bool {
	state, threads := parseStat(stat)
	return state == 0 || state == 'X' || state == 'Z' && threads <= 1
}

// parseStat reads the state and the number of threads of /proc/PID/stat; 0 and
// 0 where there is nothing. The name in it may hold anything, so it ends at
// the last parenthesis.
func parseStat(stat []byte) (state byte, threads uint64) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, 0
	}
	word, rest := cutField(stat[i+1:])
	if len(word) != 1 {
		return 0, 0
	}
	state = word[0]
	for range threadsField - stateField {
		word, rest = cutField(rest)
	}
	return state, parseNumber(word)
}

// Where proc(5) has the fields of /proc/PID/stat.
const (
	stateField   = 3
	threadsField = 20
)
