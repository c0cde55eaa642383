package client

import (
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Carried identifies a program that runs in a machine while it is saved. In each machine that is
// restored from it the program goes on.
type Carried struct {
	ID  uint32 `json:"id"` // of its request, and of its channels
	PID uint32 `json:"pid"`
	Tag uint64 `json:"tag"`
}

// Carry returns the identity of a program of Start, for Options.Carried. The program must have read
// no input, and all its output must have been delivered.
func Carry(p driver.Process) (c Carried, ok bool) {
	q, ok := driver.As[*process](p)
	if !ok || q.channels == nil {
		return c, false
	}
	return Carried{q.id, q.told.PID, q.told.Tag}, true
}

// Carried returns the program of Options.Carried, nil if there is none.
func (s *Sandbox) Carried() driver.Process {
	if s.carried == nil {
		return nil
	}
	return s.carried
}

// carryOn registers a program and connects its streams. Nothing else uses the sandbox yet.
func (s *Sandbox) carryOn(c Carried, std driver.Stdio) error {
	if c.ID == 0 || canPass(s.conn) {
		return sandbar.Errorf(sandbar.Internal, "a program cannot be carried over on this connection")
	}
	now := time.Now()
	p := &process{sandbox: s, id: c.ID, told: wire.Started{PID: c.PID, Tag: c.Tag}, asked: now, started: now,
		done: make(chan struct{}), idle: make(chan struct{})}
	if s.opt.Usage != nil {
		p.before = s.opt.Usage()
	}
	if _, _, _, err := s.attachFrames(p, std); err != nil {
		return err
	}
	p.channels.id = c.ID
	s.lastID, s.carried = c.ID, p
	s.running[c.ID], s.channels[c.ID] = p, p.channels
	p.pump(std)
	return nil
}
