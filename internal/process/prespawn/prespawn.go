// Package prespawn has the Go runtime make threads before they are needed. A
// runtime that needs one and is refused it ends the process, so whoever is to
// outlive a moment in which the host, a control group or a user has no more
// processes has its threads made while there are some.
package prespawn

import (
	"runtime"
	"sync"
)

// Ahead returns when this process has n threads besides the caller's, which the
// runtime keeps, and each has called all of f. If the kernel refuses one the
// process ends, with the runtime's own message.
func Threads(n int, f ...func()) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			// As many goroutines as hold one each at the same moment.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for _, f := range f {
				f()
			}
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}
