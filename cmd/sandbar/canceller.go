package main

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// brake turns signals to this process into an end of the program: the first
// with grace, the second at once. A third one ends this process, in case
// nothing else can.
type canceller struct {
	signals chan os.Signal
	done    sync.WaitGroup
	firstSignal   atomic.Int32
}

// endings takes the signals that ask a process to end. SIGPIPE is taken as well
// and dropped, so that a write to a pipe that nobody reads is an error like any
// other, after which there is still order; it is not ignored, because programs
// would inherit that.
func (a *app) terminationSignals() chan os.Signal {
	return a.notify(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// take takes signals, except those that are to have no effect, and SIGPIPE as
// endings does.
func (a *app) notify(all ...os.Signal) chan os.Signal {
	signals := make(chan os.Signal, 8)
	for _, s := range all {
		if !slices.Contains(a.ignoredSignals, s) {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// listen starts a brake.
func (a *app) cancelOnSignals(run *engine.Execution) *canceller {
	b := &canceller{signals: a.terminationSignals()}
	b.done.Go(func() {
		count := 0
		for s := range b.signals {
			count++
			number, _ := s.(syscall.Signal)
			b.firstSignal.CompareAndSwap(0, int32(number))
			switch count {
			case 1:
				run.Cancel()
			case 2:
				run.Kill()
			default:
				os.Exit(cli.ExitSignal + int(number))
			}
		}
	})
	return b
}

// signal is the first signal that came, or 0.
func (b *canceller) signal() int { return int(b.firstSignal.Load()) }

func (b *canceller) close() {
	signal.Stop(b.signals)
	close(b.signals)
	b.done.Wait()
}
