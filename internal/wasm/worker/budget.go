package worker

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// budget enforces the memory limit of a sandbox: linear memory of programs, files, and the growth
// of this process's heap by the shell. Linear memory is granted before it is allocated. The heap is
// checked every few milliseconds while programs run.
type budget struct {
	limit int64 // bytes; 0: none
	files func() int64

	mu      sync.Mutex
	held    map[any]int64 // linear memory, by program
	granted int64         // sum of held
	largest int64         // largest total so far
	watched map[*process]bool
	base    int64 // heap of this process without files when nothing ran
	stop    chan struct{}
}

func newBudget(limit int64, files func() int64) *budget {
	return &budget{limit: limit, files: files, held: map[any]int64{}, watched: map[*process]bool{}}
}

// grant reports whether a program may have size bytes of linear memory in total, and charges them.
func (b *budget) grant(who any, size int64) bool {
	files := b.files()
	b.mu.Lock()
	defer b.mu.Unlock()
	total := b.granted - b.held[who] + size
	if b.limit > 0 && total+files > b.limit {
		return false
	}
	b.granted, b.held[who] = total, size
	b.largest = max(b.largest, total+files)
	return true
}

// release frees the charge of a program.
func (b *budget) release(who any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted -= b.held[who]
	delete(b.held, who)
}

// used returns the memory in use, in bytes.
func (b *budget) used() int64 {
	files := b.files()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted + files
}

// peak returns the largest use since the sandbox was created, in bytes.
func (b *budget) peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.largest
}

// checkInterval is the interval of checks while a program runs.
const checkInterval = 10 * time.Millisecond

// watch starts the checks for a program.
func (b *budget) watch(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched[p] = true
	if len(b.watched) > 1 || b.limit == 0 {
		return
	}
	b.base = heap() - b.files()
	b.stop = make(chan struct{})
	go b.check(b.stop)
}

// unwatch ends the checks for a program.
func (b *budget) unwatch(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watched, p)
	if len(b.watched) == 0 && b.stop != nil {
		close(b.stop)
		b.stop = nil
	}
}

// check checks the limit at each interval, and kills all programs above it.
func (b *budget) check(stop <-chan struct{}) {
	t := time.NewTicker(checkInterval)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			if len(b.excess()) == 0 {
				continue
			}
			runtime.GC() // garbage must not count
			for _, p := range b.excess() {
				p.killForMemory()
			}
		}
	}
}

// heapAllowance is the growth of the heap that is not charged, in bytes: garbage, and this
// process's own needs.
const heapAllowance = 32 << 20

// excess returns the programs to kill: all of them above the limit, because the heap's growth
// cannot be attributed to one, or none.
func (b *budget) excess() []*process {
	files, now := b.files(), heap()
	b.mu.Lock()
	defer b.mu.Unlock()
	shell := max(0, now-files-b.base-heapAllowance)
	total := b.granted + files + shell
	b.largest = max(b.largest, total)
	if total <= b.limit {
		return nil
	}
	all := make([]*process, 0, len(b.watched))
	for p := range b.watched {
		all = append(all, p)
	}
	return all
}

// exceeded reports whether the limit is exceeded now.
func (b *budget) exceeded() bool { return b.limit > 0 && len(b.excess()) > 0 }

// heap returns the size of this process's heap in bytes, including garbage.
func heap() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}
