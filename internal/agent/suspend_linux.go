package agent

import (
	"bytes"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// onSuspend freezes all programs and answers. After the answer nothing is written until onContinue
// or onResume.
func (a *agent) onSuspend(f wire.Frame) error {
	if !a.wholeMachine || !a.ready || a.held || a.frozen || len(f.Payload) > 0 {
		return unix.EPROTO
	}
	if err := a.programs.freeze(true); err != nil {
		_ = a.programs.freeze(false)
		a.reply(f.ID, wire.FailSetup, err, "freeze the programs", nil)
		return nil
	}
	a.held, a.frozen = true, true
	a.conn.mu.Lock()
	reply := wire.Reply{}
	return a.conn.writeLocked(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: reply.Append(nil)})
}

// onResume ends what the former host had open, and renews the machine. Programs stay frozen.
func (a *agent) onResume(f wire.Frame) error {
	var r wire.Resume
	if err := r.Decode(f.Payload); err != nil || !a.held {
		return unix.EPROTO
	}
	a.cut()
	a.conn.least = r.FirstID
	a.conn.mu.Unlock()
	a.held = false
	if step, err := a.renew(&r.Renew); err != nil {
		a.reply(f.ID, wire.FailSetup, err, step, nil)
		return nil
	}
	a.reply(f.ID, wire.OK, nil, "", nil)
	return nil
}

// onContinue sets the clock and lets a suspended machine go on. The host also sends it if it has
// given up waiting for the answer to Suspend, which may have failed.
func (a *agent) onContinue(f wire.Frame) error {
	if err := a.onClock(f); err != nil {
		return err
	}
	if a.held {
		a.held = false
		a.conn.mu.Unlock()
	}
	if a.frozen {
		a.frozen = false
		return a.programs.freeze(false)
	}
	return nil
}

// freezeTimeout bounds the time until all programs are frozen.
const freezeTimeout = 10 * time.Second

// freeze freezes or thaws all programs (cgroup.freeze of cgroup version 2). It waits until they are
// frozen.
func (g programCgroup) freeze(on bool) error {
	if g.dir == 0 {
		return unix.EOPNOTSUPP
	}
	if !on {
		return writeAt(g.dir, "cgroup.freeze", "0")
	}
	if err := writeAt(g.dir, "cgroup.freeze", "1"); err != nil {
		return err
	}
	fd, err := g.open("cgroup.events", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var buf [256]byte
	for end := time.Now().Add(freezeTimeout); ; time.Sleep(time.Millisecond) {
		n, err := unix.Pread(fd, buf[:], 0)
		if err != nil {
			return err
		}
		if bytes.Contains(buf[:n], []byte("frozen 1")) {
			return nil
		}
		if time.Now().After(end) {
			return unix.ETIMEDOUT
		}
	}
}

// cut ends what a host that is gone had open.
func (a *agent) cut() {
	a.chanMu.Lock()
	channels := a.channels
	a.channels = map[uint32]*streams{}
	a.chanMu.Unlock()
	for _, s := range channels {
		s.abandon()
	}
	a.fsMu.Lock()
	files := a.files
	a.files = map[uint32]*handle{}
	a.fsMu.Unlock()
	// A worker may still use one of the files. When each worker has reached the job below, none
	// does.
	var arrived sync.WaitGroup
	arrived.Add(fileWorkers)
	var once sync.Once
	go func() {
		for range fileWorkers {
			a.jobs <- func() {
				arrived.Done()
				arrived.Wait()
				once.Do(func() {
					for _, h := range files {
						h.discard()
					}
				})
			}
		}
	}()
}

// abandon ends the input, and drops all further output of a program. It closes a connection.
func (s *streams) abandon() {
	s.mu.Lock()
	s.abandoned = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.closeIn()
	if s.in == s.out[channelOut] {
		s.in.Close()
	}
}

// isStale reports whether an id is of a request of a former host.
func (l *conn) isStale(id uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return id < l.least
}
