package agent

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchdog holds the memory limit where no cgroup does: while programs run it
// adds up what they hold and kills them all when that is too much. It counts
// memory that a process does not share, so pages shared after a fork are
// counted once for each process that has them: it errs on the safe side.
type watchdog struct {
	limit int64
	disks []string // tmpfs mounts, whose bytes are memory as well
	// whole: the kernel is the sandbox's own, and its account of all memory is
	// that of the sandbox. It knows no process's own part.
	whole bool
	own   int64 // of that, the agent's, in bytes

	mu      sync.Mutex
	running bool
}

// watchEvery is how often the watchdog looks. A program can overshoot by what
// it touches in this time; RLIMIT_DATA bounds that per process.
const watchEvery = 10 * time.Millisecond

// begin starts watching unless it is under way or there is nothing to hold.
func (w *watchdog) begin(a *agent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit <= 0 || w.running {
		return
	}
	w.running = true
	go w.watch(a)
}

func (w *watchdog) watch(a *agent) {
	page := int64(os.Getpagesize())
	for {
		time.Sleep(watchEvery)
		pids := otherPIDs()
		if w.used(pids, page) > w.limit {
			a.killForMemory()
		}
		if w.stop(len(pids) == 0) {
			return
		}
	}
}

// stop ends the watch when nothing is left to watch.
func (w *watchdog) stop(idle bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !idle
	return idle
}

func (w *watchdog) used(pids []string, page int64) int64 {
	var sum int64
	if w.whole {
		sum = anonymous() - w.own
		pids = nil
	}
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + pid + "/statm")
		if err != nil {
			continue // it has just ended
		}
		f := strings.Fields(string(b))
		if len(f) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(f[1], 10, 64)
		shared, _ := strconv.ParseInt(f[2], 10, 64)
		sum += (resident - shared) * page
	}
	for _, d := range w.disks {
		var st unix.Statfs_t
		if unix.Statfs(d, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * int64(st.Bsize)
		}
	}
	return sum
}

// anonymous is the memory of the kernel's that is no file's, in bytes.
func anonymous() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	name := []byte("\nAnonPages:")
	i := bytes.Index(b, name)
	if i < 0 {
		return 0
	}
	kib, _ := cutField(b[i+len(name):])
	return int64(parseNumber(kib)) << 10
}

// otherPIDs lists the processes of this PID namespace except the agent.
func otherPIDs() []string {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	pids := names[:0]
	for _, n := range names {
		if n[0] >= '0' && n[0] <= '9' && n != "1" {
			pids = append(pids, n)
		}
	}
	return pids
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
