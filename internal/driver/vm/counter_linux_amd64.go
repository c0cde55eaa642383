package vm

import (
	"strconv"
	"time"
)

// counter returns the time stamp counter of the processor.
func counter() uint64

// counterParameter returns a parameter of the kernel's command line with the frequency of the time
// stamp counter, which an emulated processor shares with this host's. The kernel would compare it
// with an emulated timer. On a busy host that goes wrong: of 8 emulated machines on a twelfth of a
// processor each, one took 85 MHz for 2445 MHz, and its clock ran 29 times too fast.
func counterParameter() string {
	from, began := sampleCounter()
	time.Sleep(50 * time.Millisecond)
	to, ended := sampleCounter()
	return " tsc_early_khz=" + strconv.FormatInt(int64(float64(to-from)/ended.Sub(began).Seconds()/1000), 10)
}

// sampleCounter reads the counter and the clock at the same time, unless the thread is interrupted
// each time.
func sampleCounter() (count uint64, at time.Time) {
	least := time.Duration(1<<63 - 1)
	for range 20 {
		before := time.Now()
		c := counter()
		if took := time.Since(before); took < least {
			count, at, least = c, before.Add(took/2), took
		}
	}
	return count, at
}
