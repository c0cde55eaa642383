package worker

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// budget is the memory of a sandbox: what its programs hold, what its files
// take, and what the shell, whose memory is this process's, has beyond that.
// Linear memory is granted before it is there. The rest is looked at every few
// milliseconds while programs run.
type budget struct {
	limit int64 // bytes; 0: none
	files func() int64

	mu      sync.Mutex
	held    map[any]int64 // linear memory, by program
	granted int64         // all of held
	most    int64         // the largest total there was
	watched map[*process]bool
	base    int64 // of this process, when nothing ran
	stop    chan struct{}
}

func newBudget(limit int64, files func() int64) *budget {
	return &budget{limit: limit, files: files, held: map[any]int64{}, watched: map[*process]bool{}}
}

// grant gives a program linear memory of size bytes in all, or refuses.
func (b *budget) grant(who any, size int64) bool {
	files := b.files()
	b.mu.Lock()
	defer b.mu.Unlock()
	total := b.granted - b.held[who] + size
	if b.limit > 0 && total+files > b.limit {
		return false
	}
	b.granted, b.held[who] = total, size
	b.most = max(b.most, total+files)
	return true
}

// release takes back what a program had.
func (b *budget) release(who any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted -= b.held[who]
	delete(b.held, who)
}

// used is what is in use now.
func (b *budget) used() int64 {
	files := b.files()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted + files
}

// peak is the most there was since the sandbox was made.
func (b *budget) peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// lookEvery is how often memory is looked at while a program runs.
const lookEvery = 10 * time.Millisecond

// watch begins to look at memory on account of a program.
func (b *budget) watch(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched[p] = true
	if len(b.watched) > 1 || b.limit == 0 {
		return
	}
	b.base = heap() - b.files()
	b.stop = make(chan struct{})
	go b.look(b.stop)
}

// unwatch ends that.
func (b *budget) unwatch(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watched, p)
	if len(b.watched) == 0 && b.stop != nil {
		close(b.stop)
		b.stop = nil
	}
}

// look looks again and again, and ends all programs when there is too much.
func (b *budget) look(stop <-chan struct{}) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			if len(b.excess()) == 0 {
				continue
			}
			runtime.GC() // it may be garbage
			for _, p := range b.excess() {
				p.killForMemory()
			}
		}
	}
}

// shellRoom is what the shell may hold without being charged: garbage, and what
// this process needs by itself.
const shellRoom = 32 << 20

// excess returns the programs to be ended, which are all or none: which of them
// made the shell's memory grow cannot be known.
func (b *budget) excess() []*process {
	files, now := b.files(), heap()
	b.mu.Lock()
	defer b.mu.Unlock()
	shell := max(0, now-files-b.base-shellRoom)
	total := b.granted + files + shell
	b.most = max(b.most, total)
	if total <= b.limit {
		return nil
	}
	all := make([]*process, 0, len(b.watched))
	for p := range b.watched {
		all = append(all, p)
	}
	return all
}

// exceeded reports whether there is too much now.
func (b *budget) exceeded() bool { return b.limit > 0 && len(b.excess()) > 0 }

// heap is what this process holds on its heap, garbage included.
func heap() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}
