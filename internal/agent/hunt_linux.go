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
// a mark that is hunted. What is hunted may be forking all the time, so one
// empty look proves nothing: a hunt is over after two looks in a row that
// found nothing and saw every process they had listed, alive, or dead already
// in the look before. What has died since may have forked since.
//
// Where new processes with the mark keep turning up, or processes keep dying
// before they can be looked at, the next look is taken with the sandbox
// standing still: the kernel sends SIGSTOP to all processes in one
// step, which no fork can slip through. The others then go on; they notice no
// more of it than of a shell's job control.
type hunter struct {
	a     *agent
	asked chan quarry
	buf   [8 << 10]byte // of files of /proc
	// first: the agent is PID 1, and all processes are its own to stop.
	first    bool
	resource int             // whose hard limit is the mark
	limit    string          // what that is called in /proc
	shot     map[string]bool // the processes killed in the last look
	dead     map[string]bool // those it found dead
}

// quarry is one mark that is hunted.
type quarry struct {
	id    uint32 // of the request
	mark  uint64
	until time.Time // when to give up
	found bool      // in the last look
	empty int       // looks in a row that found nothing
}

const (
	// huntLimit is how long a hunt goes on. What still runs then cannot be
	// killed: it is in the kernel and does not come back.
	huntLimit = 3 * time.Second
	// stubborn is after how many looks that settled nothing the sandbox is
	// made to stand still.
	stubborn = 6
	// huntPause is the first pause between looks, in which what was killed
	// ends; it doubles up to maxHuntPause.
	huntPause    = 100 * time.Microsecond
	maxHuntPause = 5 * time.Millisecond
)

// onKill hands a request to the hunter, which answers it.
func (a *agent) onKill(f wire.Frame) error {
	var k wire.Kill
	if err := k.Decode(f.Payload); err != nil || !a.ready || k.Mark == 0 {
		return unix.EPROTO
	}
	select {
	case a.hunter.asked <- quarry{id: f.ID, mark: k.Mark, until: time.Now().Add(huntLimit)}:
	default:
		a.reply(f.ID, wire.FailKill, unix.EAGAIN, "", nil)
	}
	return nil
}

func newHunter(a *agent) *hunter {
	return &hunter{a: a, asked: make(chan quarry, backlog), first: unix.Getpid() == 1}
}

// track tells which resource has the marks.
func (h *hunter) track(resource uint32) {
	h.resource, h.limit = int(resource), markName(resource)
}

// run hunts whenever somebody asks.
func (h *hunter) run() {
	for q := range h.asked {
		h.hunt([]quarry{q})
	}
}

// hunt ends when nothing is hunted any more. Who asks meanwhile joins.
func (h *hunter) hunt(hunted []quarry) {
	h.shot, h.dead = nil, nil
	pause, unsettled := huntPause, 0
	for len(hunted) > 0 {
		hunted = h.join(hunted)
		var s sight
		if unsettled >= stubborn && h.first { // elsewhere "all processes" are not ours alone
			s = h.lookStill(hunted)
			unsettled = 0
		} else {
			s = h.look(hunted)
		}
		if s.fresh || s.missed && !s.found {
			unsettled++
		}
		hunted = h.settle(hunted, s)
		if s.found || s.blind {
			time.Sleep(pause)
			pause = min(2*pause, maxHuntPause)
		}
	}
}

// join adds what has been asked for meanwhile.
func (h *hunter) join(hunted []quarry) []quarry {
	for {
		select {
		case q := <-h.asked:
			hunted = append(hunted, q)
		default:
			return hunted
		}
	}
}

// sight is what a look saw.
type sight struct {
	found  bool // something that is hunted
	fresh  bool // something that was not killed before
	missed bool // something has died that was alive when it was listed
	blind  bool // something could not be looked at, or not be listed
	still  bool // nothing could be born meanwhile
}

// settle answers those whose hunt is over and returns the others.
func (h *hunter) settle(hunted []quarry, s sight) []quarry {
	left := hunted[:0]
	for _, q := range hunted {
		switch {
		case q.found || s.blind:
			q.empty = 0
		case s.still:
			q.empty = 2
		case !s.missed:
			q.empty++
		}
		switch {
		case q.empty >= 2:
			h.a.reply(q.id, wire.OK, nil, "", nil)
		case time.Now().After(q.until):
			h.a.reply(q.id, wire.FailKill, unix.EBUSY, "", nil)
		default:
			left = append(left, q)
		}
	}
	return left
}

// look kills what carries a hunted mark.
func (h *hunter) look(hunted []quarry) (s sight) {
	shot, dead := map[string]bool{}, map[string]bool{}
	for i := range hunted {
		hunted[i].found = false
	}
	pids, err := h.a.proc.pids()
	s.blind = err != nil
	for i := len(pids) - 1; i >= 0; i-- { // the kernel lists the newest last
		pid := pids[i]
		switch h.shoot(pid, hunted) {
		case gone:
			s.missed = true
		case hidden:
			s.blind = true
		case corpse:
			dead[pid] = true
			s.missed = s.missed || !h.dead[pid]
		case killed:
			s.found = true
			s.fresh = s.fresh || !h.shot[pid]
			shot[pid] = true
		}
	}
	h.shot, h.dead = shot, dead
	return s
}

// lookStill is look with all processes stopped.
func (h *hunter) lookStill(hunted []quarry) sight {
	stopped := map[string]bool{} // by somebody else, before
	pids, err := h.a.proc.pids()
	if err != nil {
		return h.look(hunted)
	}
	for _, pid := range pids {
		stopped[pid] = h.state(pid) == 'T'
	}
	unix.Kill(-1, unix.SIGSTOP) // spares PID 1, the caller
	s := h.look(hunted)
	s.still = true
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
type fate int

const (
	spared fate = iota // it carries no hunted mark
	killed
	corpse // it is dead, carries a hunted mark and has not been waited for
	gone   // it is dead, and its mark cannot be known any more
	hidden // it may live, and its mark cannot be known
)

// shoot kills a process if it carries a hunted mark and is not dead already.
func (h *hunter) shoot(pid string, hunted []quarry) fate {
	dir, err := h.a.proc.open(pid)
	if hasEnded(err) {
		return gone
	}
	if err != nil {
		return h.shootUnseen(pid, hunted)
	}
	defer unix.Close(dir)
	limits, err := readProc(dir, "limits", h.buf[:])
	if hasEnded(err) || err == nil && len(limits) == 0 {
		return gone
	}
	if err != nil {
		return h.shootUnseen(pid, hunted)
	}
	mark := parseMark(limits, h.limit)
	if !marked(hunted, mark) {
		return spared
	}
	stat, err := readProc(dir, "stat", h.buf[:])
	if hasEnded(err) || err == nil && isDead(stat) {
		return corpse
	}
	return kill(dir, hunted, mark)
}

// shootUnseen is shoot without /proc, where that refuses: the kernel tells everybody
// of the same user another's limits. A pidfd holds on to the process, so that the
// limits are known to be its own.
func (h *hunter) shootUnseen(pid string, hunted []quarry) fate {
	n := int(parseNumber([]byte(pid)))
	fd, err := unix.PidfdOpen(n, 0)
	if err == unix.ESRCH {
		return gone
	}
	if err != nil {
		return hidden
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	err = unix.Prlimit(n, h.resource, nil, &limit)
	if err == unix.ESRCH || unix.PidfdSendSignal(fd, 0, nil, 0) == unix.ESRCH {
		return gone // and the limits may be those of another that got the number
	}
	if err != nil {
		return hidden
	}
	if !marked(hunted, limit.Max) {
		return spared
	}
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(ended, 0); err == nil && n == 1 && ended[0].Revents&unix.POLLIN != 0 {
		return corpse
	}
	return kill(fd, hunted, limit.Max)
}

// marked reports whether a mark is hunted.
func marked(hunted []quarry, mark uint64) bool {
	return slices.ContainsFunc(hunted, func(q quarry) bool { return q.mark == mark })
}

// kill kills the process that a descriptor means. Only a later look shows whether
// it has ended.
func kill(fd int, hunted []quarry, mark uint64) fate {
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	for i := range hunted { // more than one may have asked for it
		hunted[i].found = hunted[i].found || hunted[i].mark == mark
	}
	return killed
}

// state is the letter of a process's state in /proc; 0 when it is not known.
func (h *hunter) state(pid string) byte {
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
