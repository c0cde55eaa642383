// Package sigreset is about what a process has from its parent without having
// asked for it, and would hand on to every program it starts.
package sigreset

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals has the programs that this process starts from now on begin with
// SIGINT and SIGHUP at their defaults, and returns those of them that it was
// started with ignored, as under nohup or as a job in the background of a
// script. They stay without effect on this process until it asks for them with
// os/signal: whoever does that looks here first, because signal.Ignored no
// longer tells. Of all others the Go runtime takes care.
func Reset() (ignored []os.Signal) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			ignored = append(ignored, s)
			// What is handled is put back to its default by exec; what is
			// ignored is not. Nobody reads the channel, so that it ends nothing.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	return ignored
}
