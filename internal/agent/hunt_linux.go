package agent

import (
	"bytes"
	"os"
	"slices"
	"strconv"
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
	buf   [4 << 10]byte // of files of /proc
	self  string
	limit string          // what the mark is called there
	shot  map[string]bool // the processes killed in the last look
	dead  map[string]bool // those it found dead
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
	return &hunter{a: a, asked: make(chan quarry, backlog), self: strconv.Itoa(os.Getpid())}
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
		if unsettled >= stubborn && h.self == "1" { // elsewhere "all processes" are not ours alone
			s = h.lookStill(hunted)
			unsettled = 0
		} else {
			s = h.look(hunted)
		}
		if s.fresh || s.missed && !s.found {
			unsettled++
		}
		hunted = h.settle(hunted, s)
		if s.found {
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
	still  bool // nothing could be born meanwhile
}

// settle answers those whose hunt is over and returns the others.
func (h *hunter) settle(hunted []quarry, s sight) []quarry {
	left := hunted[:0]
	for _, q := range hunted {
		switch {
		case q.found:
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
	pids := otherPIDs()
	for i := len(pids) - 1; i >= 0; i-- { // the kernel lists the newest last
		pid := pids[i]
		if pid == h.self {
			continue
		}
		switch h.shoot(pid, hunted) {
		case gone:
			s.missed = true
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
	for _, pid := range otherPIDs() {
		stopped[pid] = h.state(pid) == 'T'
	}
	unix.Kill(-1, unix.SIGSTOP) // spares PID 1, the caller
	s := h.look(hunted)
	s.still = true
	for _, pid := range otherPIDs() {
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
)

// shoot kills a process if it carries a hunted mark and is not dead already.
// The open directory means this process, never another that got its number.
func (h *hunter) shoot(pid string, hunted []quarry) fate {
	dir, err := unix.Open("/proc/"+pid, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return gone
	}
	defer unix.Close(dir)
	limits := h.read(dir, "limits")
	if len(limits) == 0 {
		return gone
	}
	mark := parseMark(limits, h.limit)
	if !slices.ContainsFunc(hunted, func(q quarry) bool { return q.mark == mark }) {
		return spared
	}
	if isDead(h.read(dir, "stat")) {
		return corpse
	}
	unix.PidfdSendSignal(dir, unix.SIGKILL, nil, 0)
	for i := range hunted { // more than one may have asked for it
		hunted[i].found = hunted[i].found || hunted[i].mark == mark
	}
	return killed
}

// state is the letter of a process's state in /proc; 0 when it is gone.
func (h *hunter) state(pid string) byte {
	dir, err := unix.Open("/proc/"+pid, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(dir)
	state, _ := parseStat(h.read(dir, "stat"))
	return state
}

// read reads a small file of /proc into the hunter's buffer; nil if that fails.
func (h *hunter) read(dir int, name string) []byte {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, h.buf[:]) // the kernel gives all that fits at once
		if err == nil {
			return h.buf[:n]
		}
		if err != unix.EINTR {
			return nil
		}
	}
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
