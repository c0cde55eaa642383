package agent

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// watchdog enforces the memory limit on hosts without a memory cgroup. While programs run it
// measures their memory at intervals, and kills all of them if the sum exceeds the limit.
//
// It counts, per process, anonymous and shared memory, swapped-out anonymous memory, huge pages and
// page tables. A page that several processes map is first counted for each. Only if that sum
// exceeds the limit does the watchdog read each process's proportional share (PSS), for which the
// kernel walks the page tables. Each socket counts with the most bytes that it can buffer. Memory
// that cannot be read counts as over the limit.
//
// policy.UncountedRules, a seccomp filter, forbids memory that no process maps, such as memfd and
// System V segments. SECURITY.md lists what neither bounds.
type watchdog struct {
	limit int64
	disks []string // tmpfs mount points, whose used bytes are memory
	// ownKernel: the sandbox has a kernel of its own (gVisor). Its account of all memory is that of
	// the sandbox; it has none per process.
	ownKernel  bool
	agentBytes int64 // the agent's part of that, in bytes

	proc        procfs
	sockstat    int         // descriptor of sockstat
	idleSockets int64       // number of sockets before any program runs
	socketBytes int64       // most bytes that one socket can buffer
	buf         [16384]byte // for files of /proc

	mu      sync.Mutex
	running bool
}

const (
	// watchMinInterval is the shortest interval between two measurements. A program can exceed the
	// limit by what it touches within it.
	watchMinInterval = 10 * time.Millisecond
	// watchIdleRatio is the ratio of the interval to the CPU time of the measurement before it, so
	// that the watchdog uses at most a fifth of a CPU, up to watchMaxInterval.
	watchIdleRatio   = 4
	watchMaxInterval = 50 * time.Millisecond
	// confirmDelay is the delay before a second measurement confirms the first. A process and its
	// vfork(2) child show the same memory twice until the child calls execve(2).
	confirmDelay = 3 * time.Millisecond
	// pssBudget bounds the CPU time of reading PSS. Processes beyond it count in full.
	pssBudget = 50 * time.Millisecond
	// confirmBudget is the pssBudget of the second measurement, whose verdict kills. Programs in 25
	// processes that share 32 MiB need 50 ms on slow machines.
	confirmBudget = 5 * pssBudget
)

// open opens the files by which the watchdog counts. All threads of the agent must exist already.
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

// start starts the watchdog's goroutine unless it runs already or there is no limit.
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
	runtime.LockOSThread() // for threadCPUTime
	defer runtime.UnlockOSThread()
	pause := watchMinInterval
	for {
		time.Sleep(pause)
		began := threadCPUTime()
		over, idle := w.overLimit(pssBudget)
		if over {
			time.Sleep(confirmDelay)
			if over, idle = w.overLimit(confirmBudget); over {
				a.killForMemory()
			}
		}
		if w.stopIfIdle(idle) {
			return
		}
		pause = min(max(watchMinInterval, watchIdleRatio*(threadCPUTime()-began)), watchMaxInterval)
	}
}

// threadCPUTime returns the CPU time of the calling thread, which must be locked to its goroutine.
func threadCPUTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// stopIfIdle ends the watchdog if no program is left.
func (w *watchdog) stopIfIdle(idle bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !idle
	return idle
}

// processMemory is the memory of one process.
type processMemory struct {
	pid    string
	mapped int64 // in bytes; shared pages count in full
	tables int64 // bytes of mapped that are page tables
}

// overLimit reports whether programs exceed the limit, and whether there are none. A file that
// cannot be read counts as over the limit. The budget is the CPU time for reading PSS.
func (w *watchdog) overLimit(budget time.Duration) (over, idle bool) {
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
	if sum <= rest || most > rest { // the true sum is at least that of the largest process
		return sum > rest, idle
	}
	return w.exceedsShared(all, rest, budget), idle
}

// exceedsShared reports whether all processes exceed rest bytes with shared pages counted once. It
// reads the largest processes first, and no more than the verdict needs. Processes whose PSS cannot
// be read within the budget count in full, except those that have ended since they were measured:
// when many end together, the shares of the others grow.
func (w *watchdog) exceedsShared(all []processMemory, rest int64, budget time.Duration) bool {
	slices.SortFunc(all, func(a, b processMemory) int { return cmp.Compare(b.mapped, a.mapped) })
	var sum int64
	for _, p := range all {
		sum += p.mapped
	}
	end := threadCPUTime() + budget
	for _, p := range all {
		if sum <= rest || threadCPUTime() > end {
			break
		}
		held := p.mapped
		if part, ok := w.pss(p.pid); ok {
			held = min(held, part+p.tables)
		} else if now, err := w.memoryOf(p.pid); err == nil || hasEnded(err) {
			held = now.mapped
		}
		sum += held - p.mapped
	}
	return sum > rest
}

// pss returns the proportional share of a process's memory except file mappings, in bytes. The
// kernel shows it only if the agent may trace the process (proc_pid_smaps(5)).
func (w *watchdog) pss(pid string) (n int64, ok bool) {
	b, err := readProc(w.proc.root, pid+"/smaps_rollup", w.buf[:])
	if err != nil || !bytes.Contains(b, []byte("\nPss_Anon:")) { // the line exists since Linux 5.4
		return 0, false
	}
	return sumFields(b, "Pss_Anon", "Pss_Shmem", "SwapPss", "Shared_Hugetlb", "Private_Hugetlb"), true
}

// memoryOf reads the memory of one process.
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

// memoryOfThreads reads the memory of a process whose main thread has exited. Its own status shows
// none, but that of any living thread does.
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
			return processMemory{pid: pid}, nil // the last thread has exited as well
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

// parseStatusMemory reads the text of /proc/PID/status.
func parseStatusMemory(pid string, status []byte) processMemory {
	tables := sumFields(status, "VmPTE")
	return processMemory{pid, sumFields(status, "RssAnon", "RssShmem", "VmSwap", "HugetlbPages") + tables, tables}
}

// sumFields adds up lines of a /proc file, in bytes. A missing line counts 0.
func sumFields(text []byte, names ...string) (n int64) {
	for _, name := range names {
		kib, _ := statusField(text, name)
		number, _ := cutField([]byte(kib))
		n += int64(parseNumber(number)) << 10
	}
	return n
}

// countSockets returns the number of sockets in the network namespace: open ones, those in flight
// between processes, and closed ones with unread bytes.
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
	// socketTCP is the most that a TCP socket buffers per direction, in bytes, if the watchdog may
	// set tcp_rmem and tcp_wmem. Programs cannot raise a socket's buffers: the seccomp filter makes
	// SO_SNDBUF and SO_RCVBUF have no effect.
	socketTCP = 208 << 10
	// socketSlack is the size of a socket itself, and of the one packet by which the kernel may
	// exceed a buffer, in bytes.
	socketSlack = 64 << 10
)

// boundSockets lowers the TCP buffer limits of this network namespace if it may (tcp(7)), and
// returns the most bytes that one socket of any kind can buffer. /proc/sys must be readable.
func boundSockets() int64 {
	var tcp int64
	for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
		file := "/proc/sys/net/ipv4/" + name
		_ = writeFile(file, "4096 65536 "+strconv.Itoa(socketTCP))
		b, err := os.ReadFile(file)
		if err != nil { // unknown, so any socket is over the limit
			return 1 << 40
		}
		f := bytes.Fields(b)
		tcp += int64(parseNumber(f[len(f)-1]))
	}
	// A UNIX socket charges bytes to the sender until they are read, and the last message may start
	// below the bound and end above it: twice the send buffer.
	unixes := 2 * defaultSocketBuffer(unix.AF_UNIX, unix.SO_SNDBUF)
	udp := defaultSocketBuffer(unix.AF_INET, unix.SO_SNDBUF) + defaultSocketBuffer(unix.AF_INET, unix.SO_RCVBUF)
	return max(tcp, unixes, udp) + socketSlack
}

// defaultSocketBuffer returns the buffer size of a new socket, in bytes.
func defaultSocketBuffer(family, option int) int64 {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0 // no program can create one either
	}
	defer unix.Close(fd)
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return 1 << 40
	}
	return int64(n)
}

// anonymousBytes returns the memory that belongs to no file, in bytes, by the account of the
// sandbox's own kernel. gVisor counts shared mappings, files in memory and System V segments as
// anonymous.
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

// killForMemory kills every program and records the cause on those that the host knows.
func (a *agent) killForMemory() {
	a.mu.Lock()
	for _, p := range a.byPID {
		p.killed = true
	}
	a.mu.Unlock()
	unix.Kill(-1, unix.SIGKILL) // spares PID 1 and the caller, which are the agent (kill(2))
}
