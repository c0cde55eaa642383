// Package prespawn makes the Go runtime create threads before they are needed. The runtime aborts
// the process if the kernel refuses it a thread. A process that must survive an exhausted process
// limit (of the host, a cgroup or a user) creates its threads before.
package prespawn

import (
	"runtime"
	"sync"
)

// Threads returns when this process has n threads besides the caller's, and each has called all of
// f. The runtime keeps idle threads. If the kernel refuses a thread, the runtime aborts the
// process.
func Threads(n int, f ...func()) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			// All n goroutines hold a thread at the same time, so there are n threads.
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
