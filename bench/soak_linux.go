package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/client"
)

// Times of the load and of the measurements.
const (
	// answerTime is the longest wait of a caller. A caller without an answer by then counts as
	// unanswered; on an idle machine the slowest answer takes 3 s.
	answerTime = 90 * time.Second
	// lookEvery is the time between two measurements.
	lookEvery = 15 * time.Second
	// iiiGrace is how long the server keeps the call of an iii worker whose connection broke: the
	// default of bus.ServerOptions. Each such call has a goroutine.
	iiiGrace = 10 * time.Second
	// settleTime bounds the wait before a measurement for sandboxes that are being removed or made
	// ready.
	settleTime = time.Minute
	// maxFaults is the largest number of faults to print; all are counted.
	maxFaults = 20
)

// soak is a daemon under a load of all its functions.
type soak struct {
	lab    *lab
	daemon *daemon
	api    *client.Client
	iii    string       // the address of its iii engine
	stdio  atomic.Int64 // the process with the stdio protocol

	// Every operation holds turn for reading, and a measurement holds it for writing. A measurement
	// then sees the daemon between operations, always in the same state, so that measurements can
	// be compared.
	turn sync.RWMutex

	dead map[int]bool // dead children at the last search for orphans

	mu         sync.Mutex
	done       map[string]int // operations, by name
	unanswered int
	lost       int
	faults     []string
	broken     []time.Time // when connections of iii workers broke during a call
	looks      []look
	programs   []map[string]int // the processes' names at each look
}

// runSoak loads a daemon over all its protocols for a given time: programs that end normally, time
// out, exhaust their memory, write without end, fork, are cancelled or abandoned, and templates
// that are killed. It reports which of the daemon's resources grew between the first and the last
// quarter of the time, how many callers had no answer, and how many executions had a wrong result.
// The exit code is 0 if nothing grew and there were none of these.
func runSoak(l *lab, length time.Duration) int {
	// Orphans become children of this process (PR_SET_CHILD_SUBREAPER, prctl(2)), so that remaining
	// processes are found at the end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	s, err := startSoak(l)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, length)
	defer cancel()
	began := time.Now()
	s.load(ctx)
	length = time.Since(began).Round(time.Second) // it may have been interrupted
	ended := s.end()
	return s.report(length, ended)
}

// soakTemplates keep a constant number of sandboxes ready, so that measurements can be compared.
// The last is the iii engine's default.
const (
	soakTemplates = "[{language: python, min: 4, max: 4}, {min: 4, max: 4}, {language: javascript, min: 2, max: 2}, {memory: 512MiB, cpus: 1, min: 2, max: 2}]"
	soakPython    = 4
	soakReady     = soakPython + 4 + 2 + 2
)

func startSoak(l *lab) (*soak, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d, err := startDaemon(l.sandbar, "SANDBAR_LOG_LEVEL=error", "SANDBAR_TEMPLATES="+soakTemplates, "SANDBAR_MAX_SANDBOXES=64",
		"SANDBAR_III_LISTEN="+address, "SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_FATHOM_DISCONNECT_GRACE=1s", "SANDBAR_GRACE=200ms")
	if err != nil {
		return nil, err
	}
	api, err := client.New("http://"+d.addr, d.token)
	if err != nil {
		d.stop()
		return nil, err
	}
	return &soak{lab: l, daemon: d, api: api, iii: "ws://" + address, done: map[string]int{}}, nil
}

// load runs all clients until ctx ends, with measurements in between.
func (s *soak) load(ctx context.Context) {
	var clients sync.WaitGroup
	for i, c := range s.clients() {
		clients.Go(func() { s.keepBusy(ctx, i, c) })
	}
	began := time.Now()
	looks, orphans := time.NewTicker(lookEvery), time.NewTicker(time.Second)
	defer looks.Stop()
	defer orphans.Stop()
	for {
		select {
		case <-ctx.Done():
			clients.Wait()
			return
		case <-looks.C:
			s.look(began)
		case <-orphans.C: // like an init process; a sandbox does not end while it has a zombie
			s.reap()
		}
	}
}

// A deed is one operation with a check of its result. An error is a wrong result.
type deed struct {
	name string
	do   func(ctx context.Context) error
}

// keepBusy runs the deeds of a client in a loop.
func (s *soak) keepBusy(ctx context.Context, client int, deeds []deed) {
	for n := client; ctx.Err() == nil; n++ {
		d := deeds[n%len(deeds)]
		s.turn.RLock()
		// Not with ctx: an operation that has begun may end, and counts.
		err := s.answered(d)
		s.turn.RUnlock()
		s.count(d.name, err)
	}
}

// errUnanswered is the error after answerTime.
var errUnanswered = errors.New("no answer")

// answered runs a deed and waits at most answerTime for its end.
func (s *soak) answered(d deed) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.do(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() != nil && err != nil {
			return errUnanswered
		}
		return err
	case <-time.After(answerTime + 10*time.Second):
		return errUnanswered
	}
}

func (s *soak) count(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[name]++
	switch {
	case err == nil:
		return
	case errors.Is(err, errUnanswered):
		s.unanswered++
	default:
		s.lost++
	}
	s.note(name + ": " + err.Error())
}

// note records a message for the report. s.mu is held.
func (s *soak) note(what string) {
	if len(s.faults) < maxFaults {
		s.faults = append(s.faults, time.Now().Format(time.TimeOnly)+" "+what)
	}
}

// end stops the daemon and returns what was wrong with its end.
func (s *soak) end() []string {
	s.api.Close()
	owner := fmt.Sprintf("%d-", s.daemon.cmd.Process.Pid)
	var wrong []string
	if pid := int(s.stdio.Load()); pid > 0 {
		unix.Kill(pid, unix.SIGKILL)
	}
	// Not SIGINT, which shells ignore for background jobs.
	s.daemon.cmd.Process.Signal(unix.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { s.daemon.cmd.Process.Kill() }).Stop()
	if err := s.daemon.cmd.Wait(); err != nil {
		wrong = append(wrong, "the daemon ended with "+err.Error())
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		s.dead = reap(s.dead)
		left := append(groupsOf(owner), entriesBelow(s.daemon.dir+"/run")...)
		for pid, p := range family(os.Getpid()) {
			left = append(left, fmt.Sprintf("process %d %s", pid, p.name))
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			wrong = append(wrong, "left behind: "+strings.Join(left, ", "))
			break
		}
	}
	os.RemoveAll(s.daemon.dir)
	return wrong
}

// report prints the report and returns the exit code.
func (s *soak) report(length time.Duration, wrong []string) int {
	total := 0
	for _, n := range s.done {
		total += n
	}
	fmt.Printf("%d operations in %v (%.1f a second)\n", total, length, float64(total)/length.Seconds())
	names := make([]string, 0, len(s.done))
	for name := range s.done {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("  %-32s %7d\n", name, s.done[name])
	}
	flat := table(s.looks)
	if n := len(s.programs); n > 0 {
		fmt.Printf("processes at the first look: %v\nprocesses at the last look:  %v\n", s.programs[0], s.programs[n-1])
	}
	fmt.Printf("callers without an answer: %d\nexecutions lost or with another end than their program's: %d\n", s.unanswered, s.lost)
	for _, f := range append(s.faults, wrong...) {
		fmt.Println("  " + f)
	}
	if !flat || s.unanswered+s.lost+len(wrong) > 0 {
		fmt.Println("FAILED")
		return 1
	}
	fmt.Println("kept: no growth, every request answered, no sandbox lost, no leftover")
	return 0
}
