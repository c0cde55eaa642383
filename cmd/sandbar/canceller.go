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

// canceller ends an execution on signals to this process. The first signal cancels the program with
// its grace period, the second kills it, the third exits this process.
type canceller struct {
	signals     chan os.Signal
	done        sync.WaitGroup
	firstSignal atomic.Int32
}

// terminationSignals returns a channel that receives SIGINT, SIGTERM and SIGHUP.
func (a *app) terminationSignals() chan os.Signal {
	return a.notify(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// notify returns a channel that receives the given signals, except those that were
// ignored when this process started. It also catches and drops SIGPIPE, so that a write
// to a closed pipe returns EPIPE and clean-up runs. SIGPIPE is not ignored because
// ignored signals are inherited across execve(2).
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

// cancelOnSignals starts a canceller for run. The caller must close it.
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

// signal returns the number of the first signal received, or 0.
func (b *canceller) signal() int { return int(b.firstSignal.Load()) }

func (b *canceller) close() {
	signal.Stop(b.signals)
	close(b.signals)
	b.done.Wait()
}
