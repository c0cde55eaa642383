package client

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// bulkOutput is the output of a program that writes at a constant rate.
type bulkOutput struct {
	piece int           // bytes per write
	every time.Duration // time between writes
	left  int           // bytes not yet written

	began time.Time
	taken int
	reads int
	hold  int // capacity of the pipe in bytes
	can   bool
}

func (p *bulkOutput) ready() int {
	return min(int(time.Since(p.began)/p.every)*p.piece-p.taken, p.left, p.hold)
}

// Read waits for the next write and returns the bytes in the pipe.
func (p *bulkOutput) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	for p.ready() == 0 {
		time.Sleep(p.every)
	}
	n := min(p.ready(), len(b))
	p.taken += n
	p.left -= n
	p.reads++
	return n, nil
}

func (p *bulkOutput) Close() error { return nil }
func (p *bulkOutput) finish()      {}

func (p *bulkOutput) grow(size int) bool {
	if p.can {
		p.hold = size
	}
	return p.can
}

// Continuous output is read in large pieces. Occasional output is read at once, and so is
// continuous output if the pipe is too small for the output of one delay.
func TestFloodIsGathered(t *testing.T) {
	for name, tc := range map[string]struct {
		bulkOutput
		atMost, atLeast int // reads
	}{
		"100 MB/s in pieces of 4 KiB":          {bulkOutput{piece: 4 << 10, every: 40 * time.Microsecond, left: 16 << 20, can: true}, 400, 0},
		"the same, and the pipe cannot grow":   {bulkOutput{piece: 4 << 10, every: 40 * time.Microsecond, left: 16 << 20}, 5000, 4000},
		"20,000 lines a second of 80 bytes":    {bulkOutput{piece: 80, every: 50 * time.Microsecond, left: 80 * 20_000}, 2500, 0},
		"100 lines a second":                   {bulkOutput{piece: 80, every: 10 * time.Millisecond, left: 80 * 1000}, 1000, 1000},
		"a large piece now and then":           {bulkOutput{piece: 30 << 10, every: 100 * time.Millisecond, left: 30 << 20, can: true}, 1024, 1024},
		"32 lines at once, as of a short list": {bulkOutput{piece: 80, every: 10 * time.Microsecond, left: 80 * 31}, 31, 31},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.bulkOutput
				p.began, p.hold = time.Now(), 64<<10
				total := p.left
				if moved := copyOutput(io.Discard, &p); moved != int64(total) {
					t.Errorf("%d bytes were delivered, of %d", moved, total)
				}
				if p.reads > tc.atMost || p.reads < tc.atLeast {
					t.Errorf("%d reads, want %d to %d", p.reads, tc.atLeast, tc.atMost)
				}
			})
		})
	}
}
