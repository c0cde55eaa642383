// Package sigreset resets inherited signal dispositions, which a process would pass on to every
// program that it starts.
package sigreset

import (
	"os"
	"os/signal"
	"syscall"
)

// Reset makes programs that this process starts from now on begin with the default action for
// SIGINT and SIGHUP. It returns those of the two that this process has inherited as ignored, for
// instance from nohup or as a background job of a script. They stay without effect on this process
// until it handles them with os/signal; a caller that does so must check the result first, because
// signal.Ignored does not report them any more. The Go runtime takes care of all other signals.
func Reset() (ignored []os.Signal) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			ignored = append(ignored, s)
			// execve(2) resets handled signals to their default, but keeps ignored ones ignored
			// (signal(7)). Nobody reads the channel, so the signal has no effect on this process.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	return ignored
}
