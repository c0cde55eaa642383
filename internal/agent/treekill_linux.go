package agent

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// treeKiller kills every process with a tag. There is one, with its own goroutine, memory and
// thread from before the first program runs; it serves all requests together.
//
// A scan lists the processes, the newest first, and kills those with a requested tag. They may fork
// during the scan, so one empty scan proves nothing. A request is done after two consecutive scans
// that found no living process with the tag and that saw every listed process either alive or
// already dead in the scan before. A process that died between the two may have forked in between.
//
// If new processes with the tag keep appearing, or processes keep dying before they are read, the
// next scan stops the whole sandbox: kill(-1, SIGSTOP) signals all processes in one step that no
// fork can escape. The scan then continues the others with SIGCONT, as job control does.
type treeKiller struct {
	a        *agent
	requests chan killTarget
	buf      [8 << 10]byte // for files of /proc
	// isInit: the agent is PID 1, so kill(-1) reaches this sandbox only.
	isInit    bool
	resource  int             // the resource whose hard limit is the tag
	limitName string          // that resource's line in /proc/PID/limits
	killed    map[string]bool // processes that the last scan killed
	zombies   map[string]bool // processes that the last scan found dead
}

// killTarget is one requested tag.
type killTarget struct {
	id         uint32 // of the request
	tag        uint64
	deadline   time.Time // when to give up
	alive      bool      // the last scan found a living process with the tag
	emptyScans int       // consecutive scans that found none
	scans      int
}

const (
	// killTimeout and killScans bound one request. A process that lives longer than both is in an
	// uninterruptible sleep in the kernel. On an emulated or busy processor 3 s can be too short for
	// a few scans.
	killTimeout = 3 * time.Second
	killScans   = 100
	// stopAfterScans is the number of inconclusive scans after which the next one stops the
	// sandbox.
	stopAfterScans = 6
	// scanPause is the first pause between scans, in which killed processes exit. It doubles up to
	// maxScanPause.
	scanPause    = 100 * time.Microsecond
	maxScanPause = 5 * time.Millisecond
)

// onKill passes a request to the tree killer, which answers it.
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

// setResource sets the resource whose hard limit is the tag.
func (h *treeKiller) setResource(resource uint32) {
	h.resource, h.limitName = int(resource), tagLimitName(resource)
}

// run serves requests.
func (h *treeKiller) run() {
	for q := range h.requests {
		h.killAll([]killTarget{q})
	}
}

// killAll scans until all targets are done. Requests that arrive meanwhile join.
func (h *treeKiller) killAll(targets []killTarget) {
	h.killed, h.zombies = nil, nil
	pause, unsettled := scanPause, 0
	for len(targets) > 0 {
		targets = h.addRequests(targets)
		var s scanResult
		// otherwise kill(-1) would reach processes outside of the sandbox
		if unsettled >= stopAfterScans && h.isInit {
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

// addRequests adds the requests that have arrived.
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

// scanResult is what one scan saw.
type scanResult struct {
	killed     bool // a process with a requested tag
	newProcess bool // a process that the scan before had not killed
	raced      bool // a process died after it was listed, so its children may be unseen
	unreadable bool // a process or the list could not be read
	stopped    bool // the sandbox was stopped, so nothing could fork
}

// answerFinished answers the requests that are done or timed out, and returns the others.
func (h *treeKiller) answerFinished(targets []killTarget, s scanResult) []killTarget {
	left := targets[:0]
	for _, q := range targets {
		q.scans++
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
		case q.scans >= killScans && time.Now().After(q.deadline):
			h.a.reply(q.id, wire.FailKill, unix.EBUSY, "", nil)
		default:
			left = append(left, q)
		}
	}
	return left
}

// scan kills the processes with a requested tag.
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

// scanStopped is scan with all processes stopped.
func (h *treeKiller) scanStopped(targets []killTarget) scanResult {
	stopped := map[string]bool{} // stopped by somebody else before
	pids, err := h.a.proc.pids()
	if err != nil {
		return h.scan(targets)
	}
	for _, pid := range pids {
		stopped[pid] = h.state(pid) == 'T'
	}
	unix.Kill(-1, unix.SIGSTOP) // spares PID 1, the caller (kill(2))
	s := h.scan(targets)
	s.stopped = true
	if pids, err = h.a.proc.pids(); err != nil {
		// better to continue a process that was stopped before than to leave one stopped permanently
		unix.Kill(-1, unix.SIGCONT)
	}
	for _, pid := range pids {
		if !stopped[pid] { // dying processes ignore SIGCONT
			unix.Kill(int(parseNumber([]byte(pid))), unix.SIGCONT)
		}
	}
	return s
}

// scanOutcome is the result for one listed process.
type scanOutcome int

const (
	notTarget scanOutcome = iota // it has no requested tag
	wasKilled
	zombie     // it has a requested tag, is dead and is not reaped yet
	exited     // it is dead, and its tag cannot be read any more
	unknownTag // it may live, and its tag cannot be read
)

// killIfTarget kills a process if it has a requested tag and is not dead.
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
	tag := parseTag(limits, h.limitName)
	if !isTarget(targets, tag) {
		return notTarget
	}
	stat, err := readProc(dir, "stat", h.buf[:])
	if hasEnded(err) || err == nil && isDead(stat) {
		return zombie
	}
	return killTagged(dir, targets, tag)
}

// killByPidfd is killIfTarget for a process that /proc refuses to show: prlimit(2) shows limits to
// every process of the same user. The pidfd is opened first and checked afterwards, so that the
// limits are not those of another process with a reused pid.
func (h *treeKiller) killByPidfd(pid string, targets []killTarget) scanOutcome {
	n := int(parseNumber([]byte(pid)))
	fd, err := unix.PidfdOpen(n, 0)
	if err == unix.ESRCH || err == unix.EINVAL { // EINVAL: just now
		return exited
	}
	if err != nil {
		return unknownTag
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	err = unix.Prlimit(n, h.resource, nil, &limit)
	if err == unix.ESRCH || unix.PidfdSendSignal(fd, 0, nil, 0) == unix.ESRCH {
		return exited // the limits may be those of a process that reused the pid
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

// isTarget reports whether a tag is requested.
func isTarget(targets []killTarget, tag uint64) bool {
	return slices.ContainsFunc(targets, func(q killTarget) bool { return q.tag == tag })
}

// killTagged kills the process of a pidfd or /proc/PID descriptor. Only a later scan shows whether
// it has exited.
func killTagged(fd int, targets []killTarget, tag uint64) scanOutcome {
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for i := range targets { // several requests may have the same tag
		targets[i].alive = targets[i].alive || targets[i].tag == tag
	}
	return wasKilled
}

// state returns the process's state letter in /proc/PID/stat, 0 if unknown.
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

// isDead reports whether a stat file shows a process that waits to be reaped. A process whose main
// thread has exited looks the same (Z), but has more than one thread.
func isDead(stat []byte) bool {
	state, threads := parseStat(stat)
	return state == 0 || state == 'X' || state == 'Z' && threads <= 1
}

// parseStat reads the state and the number of threads of /proc/PID/stat, 0 and 0 if the text is
// malformed. The command name may contain any byte, so the fields start after the last parenthesis.
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

// Field numbers of /proc/PID/stat (proc_pid_stat(5)).
const (
	stateField   = 3
	threadsField = 20
)
