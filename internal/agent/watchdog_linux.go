package agent

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// watchdog holds the memory limit where no cgroup does: while programs run it
// adds up what they hold and kills them all when that is too much.
//
// Of each process it counts private and shared memory, both with what is swapped
// out of the private, huge pages and page tables. A page that several processes
// map is at first counted for each of them. Only if that sum is above the limit the
// kernel is asked for each process's proportional share (PSS), for which it walks
// the page tables. Sockets count as many bytes as they can hold. Memory that cannot
// be read counts as too much.
//
// The filter of uncounted memory (policy.UncountedRules) keeps programs from memory
// that no process maps. What neither the filter nor the watchdog bounds is listed in
// SECURITY.md.
type watchdog struct {
	limit int64
	disks []string // tmpfs mounts, whose bytes are memory as well
	// whole: the kernel is the sandbox's own, and its account of all memory is
	// that of the sandbox. It knows no process's own part.
	ownKernel  bool
	agentBytes int64 // of that, the agent's, in bytes

	proc        procfs
	sockstat    int         // the file of the number of sockets, open
	idleSockets int64       // how many there are without programs
	socketBytes int64       // what one can hold, in bytes
	buf         [16384]byte // of files of /proc

	mu      sync.Mutex
	running bool
}

const (
	// watchEvery is the shortest pause between two looks. A program can overshoot
	// by what it touches in this time.
	watchMinInterval = 10 * time.Millisecond
	// watchShare is how many times the processor time of a look the pause after it
	// lasts, so that the watch takes no more than a fifth of a processor, until
	// the pause is watchAtMost.
	watchIdleRatio   = 4
	watchMaxInterval = 50 * time.Millisecond
	// watchAgain is the pause before the look that confirms what has been seen. A
	// process and its child by vfork are two with the same memory until the child
	// executes another program.
	confirmDelay = 3 * time.Millisecond
	// walkWithin bounds the processor time of a walk through page tables. The shares of processes that
	// it does not come to count in full.
	pssBudget = 50 * time.Millisecond
)

// ready opens what the watchdog counts by. All threads of the agent are there.
func (w *watchdog) open(s *wire.Setup, proc procfs) (step string, err error) {
	w.limit, w.disks, w.ownKernel, w.proc = s.Watchdog, s.WatchDisks, s.WatchKernel, proc
	if w.ownKernel {
		w.agentBytes, err = anonymousBytes()
		return "read how much memory is in use", err
	}
	if w.limit <= 0 {
		return "", nil
	}
	const file = "self/net/sockstat"
	if w.sockstat, err = unix.Openat(proc.root, file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		w.idleSockets, err = w.countSockets()
	}
	return "open the number of sockets", err
}

// begin starts watching unless it is under way or there is nothing to hold.
func (w *watchdog) start(a *agent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit <= 0 || w.running {
		return
	}
	w.running = true
	go w.loop(a)
}

func (w *watchdog) loop(a *agent) {
	runtime.LockOSThread() // for spent
	defer runtime.UnlockOSThread()
	pause := watchMinInterval
	for {
		time.Sleep(pause)
		began := threadCPUTime()
		over, idle := w.overLimit()
		if over {
			time.Sleep(confirmDelay)
			if over, idle = w.overLimit(); over {
				a.killForMemory()
			}
		}
		if w.stopIfIdle(idle) {
			return
		}
		pause = min(max(watchMinInterval, watchIdleRatio*(threadCPUTime()-began)), watchMaxInterval)
	}
}

// spent is the processor time of the calling thread, which must be locked.
func threadCPUTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// stop ends the watch when nothing is left to watch.
func (w *watchdog) stopIfIdle(idle bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !idle
	return idle
}

// share is what one process holds.
type processMemory struct {
	pid    string
	mapped int64 // in bytes; pages that others map as well count in full
	tables int64 // of that, page tables
}

// look reports whether programs hold more than the limit, and whether there are
// none. What cannot be read is more than the limit.
func (w *watchdog) overLimit() (over, idle bool) {
	pids, err := w.proc.pids()
	if err != nil {
		return true, false
	}
	idle = len(pids) == 0
	rest := w.limit
	for _, d := range w.disks {
		var st unix.Statfs_t
		if unix.Statfs(d, &st) != nil {
			return true, idle
		}
		rest -= int64(st.Blocks-st.Bfree) * int64(st.Bsize)
	}
	if w.ownKernel {
		n, err := anonymousBytes()
		return err != nil || n-w.agentBytes > rest, idle
	}
	n, err := w.countSockets()
	if err != nil {
		return true, idle
	}
	rest -= max(n-w.idleSockets, 0) * w.socketBytes
	var all []processMemory
	var sum, most int64
	for _, pid := range pids {
		p, err := w.memoryOf(pid)
		if hasEnded(err) {
			continue
		}
		if err != nil {
			return true, idle
		}
		all = append(all, p)
		sum, most = sum+p.mapped, max(most, p.mapped)
	}
	if sum <= rest || most > rest { // together they hold no less than the largest does
		return sum > rest, idle
	}
	return w.sumPSS(all) > rest, idle
}

// shared adds up what processes hold, with pages that several of them map counted
// once, in bytes. Where that cannot be found out they count as often as they are
// mapped.
func (w *watchdog) sumPSS(all []processMemory) (sum int64) {
	end := threadCPUTime() + pssBudget
	for _, p := range all {
		held := p.mapped
		if threadCPUTime() < end {
			if part, ok := w.pss(p.pid); ok {
				held = min(held, part+p.tables)
			}
		}
		sum += held
	}
	return sum
}

// proportion is a process's proportional share of the memory that it maps, but for
// files, in bytes. The kernel tells it only of processes that the agent may trace.
func (w *watchdog) pss(pid string) (n int64, ok bool) {
	b, err := readProc(w.proc.root, pid+"/smaps_rollup", w.buf[:])
	if err != nil || !bytes.Contains(b, []byte("\nPss_Anon:")) { // before Linux 5.4
		return 0, false
	}
	return sumFields(b, "Pss_Anon", "Pss_Shmem", "SwapPss", "Shared_Hugetlb", "Private_Hugetlb"), true
}

// process looks at one process.
func (w *watchdog) memoryOf(pid string) (processMemory, error) {
	b, err := readProc(w.proc.root, pid+"/status", w.buf[:])
	if err != nil {
		return processMemory{}, err
	}
	if state, _ := statusField(b, "State"); len(state) > 0 && state[0] == 'Z' {
		if threads, _ := statusField(b, "Threads"); parseNumber([]byte(threads)) > 1 {
			return w.memoryOfThreads(pid)
		}
	}
	return parseStatusMemory(pid, b), nil
}

// headless looks at a process whose first thread has ended, which therefore shows
// no memory, by one that goes on.
func (w *watchdog) memoryOfThreads(pid string) (processMemory, error) {
	dir, err := w.proc.open(pid + "/task")
	if err != nil {
		return processMemory{}, err
	}
	d := os.NewFile(uintptr(dir), "task")
	defer d.Close()
	for {
		names, err := d.Readdirnames(16)
		if err == io.EOF {
			return processMemory{pid: pid}, nil // the last thread has ended as well
		}
		if err != nil {
			return processMemory{}, err
		}
		for _, tid := range names {
			b, err := readProc(dir, tid+"/status", w.buf[:])
			if err != nil && !hasEnded(err) {
				return processMemory{}, err
			}
			if s := parseStatusMemory(pid, b); s.mapped > 0 {
				return s, nil
			}
		}
	}
}

// statusShare reads the text of /proc/PID/status.
func parseStatusMemory(pid string, status []byte) processMemory {
	tables := sumFields(status, "VmPTE")
	return processMemory{pid, sumFields(status, "RssAnon", "RssShmem", "VmSwap", "HugetlbPages") + tables, tables}
}

// total adds up lines of a text of /proc, in bytes. Lines that are not there count
// nothing.
func sumFields(text []byte, names ...string) (n int64) {
	for _, name := range names {
		kib, _ := statusField(text, name)
		number, _ := cutField([]byte(kib))
		n += int64(parseNumber(number)) << 10
	}
	return n
}

// countSockets is how many sockets there are in the sandbox's network namespace,
// open, on the way between processes, or closed with bytes that nobody has read.
func (w *watchdog) countSockets() (int64, error) {
	var buf [512]byte
	n, err := unix.Pread(w.sockstat, buf[:], 0)
	if err != nil {
		return 0, err
	}
	rest, ok := bytes.CutPrefix(buf[:n], []byte("sockets: used "))
	if !ok {
		return 0, unix.EPROTO
	}
	used, _ := cutField(rest)
	return int64(parseNumber(used)), nil
}

const (
	// socketTCP is the most that a TCP socket buffers in each direction, in bytes,
	// where the watchdog may say so. Programs cannot change any socket's buffers:
	// the filter has no effect given to SO_SNDBUF and SO_RCVBUF.
	socketTCP = 208 << 10
	// socketSlack is what a socket is itself, and how far the kernel lets the last
	// packet exceed a buffer.
	socketSlack = 64 << 10
)

// boundSockets lowers what TCP sockets of this network namespace may buffer, where
// that is allowed, and returns what one socket of any kind can hold, in bytes. It
// has to be called where /proc/sys can be read.
func boundSockets() int64 {
	var tcp int64
	for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
		file := "/proc/sys/net/ipv4/" + name
		_ = writeFile(file, "4096 65536 "+strconv.Itoa(socketTCP))
		b, err := os.ReadFile(file)
		if err != nil { // not even read: a socket is too much
			return 1 << 40
		}
		f := bytes.Fields(b)
		tcp += int64(parseNumber(f[len(f)-1]))
	}
	// What is sent over a UNIX socket counts as the sender's until it is read, and
	// one message may begin below the bound and end above it.
	unixes := 2 * defaultSocketBuffer(unix.AF_UNIX, unix.SO_SNDBUF)
	udp := defaultSocketBuffer(unix.AF_INET, unix.SO_SNDBUF) + defaultSocketBuffer(unix.AF_INET, unix.SO_RCVBUF)
	return max(tcp, unixes, udp) + socketSlack
}

// bufferOf is the size of a buffer of a new socket, in bytes.
func defaultSocketBuffer(family, option int) int64 {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0 // no program has one either
	}
	defer unix.Close(fd)
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return 1 << 40
	}
	return int64(n)
}

// anonymous is the memory that is no file's, in bytes, by the account of a kernel
// that is the sandbox's own. gVisor's counts shared mappings, files in memory and
// System V segments to it.
func anonymousBytes() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	if _, ok := statusField(b, "AnonPages"); !ok {
		return 0, unix.EPROTO
	}
	return sumFields(b, "AnonPages"), nil
}

// killForMemory kills every program and marks those the host knows.
func (a *agent) killForMemory() {
	a.mu.Lock()
	for _, p := range a.byPID {
		p.killed = true
	}
	a.mu.Unlock()
	unix.Kill(-1, unix.SIGKILL) // spares PID 1, the caller
}
