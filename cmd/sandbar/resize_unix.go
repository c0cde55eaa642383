//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls update whenever the terminal's size has changed, one call at a time, until stop is
// called.
func onResize(update func()) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				update()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(done)
	}
}
