package client

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Spawner is a connection to a process that starts agents: the agent's executable in
// agent.ModeSpawner. Its methods may be called concurrently.
type Spawner struct {
	mu   sync.Mutex
	conn *net.UnixConn
	last uint32
	out  []byte
}

// spawnTimeout bounds one Spawn, and the Hello. A spawner that takes longer is stuck in the kernel,
// or the host is overloaded: it is long because all sandboxes end with the spawner.
const spawnTimeout = 2 * time.Minute

// NewSpawner takes ownership of conn and waits for the spawner's Hello. On failure it closes conn.
func NewSpawner(conn *net.UnixConn) (*Spawner, error) {
	conn.SetDeadline(time.Now().Add(spawnTimeout))
	if err := readHello(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return &Spawner{conn: conn}, nil
}

// Spawn starts an agent and returns its process id and a pidfd, which the caller owns. fds are the
// agent's connection and, optionally, the cgroup in which it starts; the caller keeps them.
//
// Gone means that the spawner has exited, and with it every agent that it started. Any other error
// concerns this agent only.
func (s *Spawner) Spawn(r *wire.Spawn, fds ...int) (pid, pidfd int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	payload := r.Append(nil)
	s.out = append(wire.AppendHeader(s.out[:0], wire.Header{
		Length: uint32(len(payload)), Type: wire.TypeSpawn, FDs: uint8(len(fds)), ID: s.last}), payload...)
	s.conn.SetDeadline(time.Now().Add(spawnTimeout))
	if err := writeWithFDs(s.conn, s.out, fds); err != nil {
		return 0, -1, s.lost(err)
	}
	f, err := readFrame(s.conn)
	if err != nil {
		return 0, -1, s.lost(err)
	}
	return s.answered(f)
}

// answered decodes the answer to the last request.
func (s *Spawner) answered(f wire.Frame) (pid, pidfd int, err error) {
	var r wire.Reply
	var agent wire.Spawned
	switch {
	case f.Type != wire.TypeReply || f.ID != s.last || r.Decode(f.Payload) != nil:
	case r.Failure != wire.OK:
		closeFDs(f.FDs)
		return 0, -1, spawnError(&r)
	case len(f.FDs) == 1 && agent.Decode(r.Data) == nil && agent.PID != 0:
		return int(agent.PID), f.FDs[0], nil
	}
	closeFDs(f.FDs)
	return 0, -1, s.lost(errViolation)
}

// lost closes the connection after a violation or an I/O error.
func (s *Spawner) lost(err error) error {
	s.conn.Close()
	return sandbar.Errorf(sandbar.Gone, "the process that starts agents has ended: %w", err)
}

// Close closes the connection, which ends the spawner and all its agents.
func (s *Spawner) Close() error { return s.conn.Close() }

// spawnError returns the error of an agent that could not be started.
func spawnError(r *wire.Reply) error {
	cause := errnoOf(r.Errno)
	code := sandbar.Internal
	switch cause {
	case syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE:
		code = sandbar.Exhausted // a kernel limit on processes or namespaces
	}
	return forbidden(sandbar.Errorf(code, "an agent could not be started: %s: %w", said(r.Text), cause), cause)
}
