package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
	"github.com/sandbar-dev/sandbar/internal/process/child"
)

// stack is a running process of package netstack.
type stack struct {
	host    *Host
	process *child.Process
	conn    *wire.Conn
	stderr  *headBuffer

	// Guarded by host.mu: the links that the process has, also those that it was
	// asked to let go of.
	links map[uint32]*Link
}

// tail keeps the beginning of what a process says on its standard error.
type headBuffer struct {
	mu sync.Mutex
	b  []byte
}

// mostSaid is how much of that is kept, in bytes.
const maxStderr = 512

func (t *headBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[:min(len(p), maxStderr-len(t.b))]...)
	return len(p), nil
}

func (t *headBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// environment of the process: what the runtime would look at again and again is in
// files, which the process cannot open.
func stackEnvironment() []string {
	return []string{"GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
}

// startPatience is how long a process may take to be confined.
const startTimeout = 30 * time.Second

// startStack starts a process and waits until it is confined.
func (h *Host) startStack() (*stack, error) {
	conn, theirs, err := wire.Pair()
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	defer theirs.Close()
	s := &stack{host: h, conn: conn, stderr: &headBuffer{}, links: map[uint32]*Link{}}
	s.process, err = child.StartOn(theirs, []string{wire.Name}, stackEnvironment(), s.stderr)
	if err != nil {
		conn.Close()
		return nil, err
	}
	theirs.Close() // so that its end is seen
	late := time.AfterFunc(startTimeout, s.kill)
	defer late.Stop()
	f, err := conn.ReceiveBare()
	if err == nil && f.Kind != wire.Ready {
		err = errProtocol
	}
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Internal, Err: s.end(err), Message: "the process that carries sandboxes' packets does not start",
			Fix: "use the network \"none\", or look at the reason"}
	}
	return s, nil
}

// errOrder is the error of a frame that does not fit where it comes.
var errProtocol = errors.New("the process broke the protocol")

func (s *stack) kill() { s.process.Kill() }

// ended is closed when nothing of the process is left.
func (s *stack) ended() <-chan struct{} { return s.process.Ended() }

// end ends the process and tells how it ended, with what it said about it.
func (s *stack) end(err error) error {
	s.kill()
	<-s.ended()
	s.conn.Close()
	s.host.mu.Lock()
	for _, l := range s.links {
		l.stack = nil
	}
	s.host.mu.Unlock()
	return fmt.Errorf("%w (%v) %s", err, s.process.Err(), strconv.Quote(s.stderr.String()))
}

// send sends a frame. A process that does not take it is killed: then it is
// started again, and handed what there is.
func (s *stack) send(f wire.Frame, fds ...int) {
	if s.conn.Send(f, fds...) != nil {
		s.kill()
	}
}

// begin sends the rules.
func (s *stack) sendRules(o driver.Outbound) error {
	allow, deny, ports := slices.Chunk(o.AllowPrivate, wire.MaxList), slices.Chunk(o.Deny, wire.MaxList), slices.Chunk(o.DeniedPorts, wire.MaxList)
	var err error
	send := func(f wire.Frame) {
		if err == nil {
			err = s.conn.Send(f)
		}
	}
	for x := range allow {
		send(wire.Frame{Kind: wire.Rules, Allow: x})
	}
	for x := range deny {
		send(wire.Frame{Kind: wire.Rules, Deny: x})
	}
	for x := range ports {
		send(wire.Frame{Kind: wire.Rules, Ports: x})
	}
	send(wire.Frame{Kind: wire.Start, MaxConnections: uint32(o.MaxConnections), MaxBytes: uint64(o.MaxBytes)})
	return err
}

// hand hands a link over. The caller holds host.mu.
func (s *stack) attach(l *Link) {
	l.stack, s.links[l.id] = s, l
	s.send(wire.Frame{Kind: wire.Attach, Link: l.id}, l.device, l.ledger)
}

// tendEvery is how often the host's name servers are looked at, and whether there
// are links. Without any at two looks the process is ended.
const pollInterval = 2500 * time.Millisecond

// tend keeps the name servers of the process up to date until it ends (over), or
// ctx does, with which it is killed. It reports whether the process is forgotten
// because there are no links.
func (s *stack) poll(ctx context.Context, configured []netip.AddrPort, over chan error) (retired bool) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var had []netip.AddrPort
	for idle := false; ; {
		if now := nameServers(configured); !slices.Equal(now, had) {
			had = now
			s.send(wire.Frame{Kind: wire.Names, Servers: now})
		}
		select {
		case <-tick.C:
			was := idle
			if idle = s.idle(); idle && was && s.host.retireIfIdle(s) {
				return true
			}
		case err := <-over:
			over <- err
			return false
		case <-ctx.Done():
			s.kill()
			return false
		}
	}
}

// idle reports whether the process has no link.
func (s *stack) idle() bool {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return len(s.links) == 0
}

// listen takes what the process tells until the connection ends.
func (s *stack) listen() error {
	for {
		f, err := s.conn.ReceiveBare()
		if err == nil {
			err = s.handle(f)
		}
		if err != nil {
			return err
		}
	}
}

// take takes a frame. What does not fit is an error; so a process can make the
// daemon do no more than there are links.
func (s *stack) handle(f wire.Frame) error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	l := s.links[f.Link]
	switch {
	case l == nil:
		return errProtocol
	case f.Kind == wire.Detached && l.detached != nil:
		delete(s.links, f.Link)
		l.stack = nil
		close(l.detached)
		return nil
	case f.Kind == wire.Note && f.Event == wire.UsedUp:
		return s.logOnce(l, f.Event, slog.LevelInfo, "a sandbox has used up what it may send and receive", "bytes", s.host.rules.MaxBytes)
	case f.Kind == wire.Note && f.Event == wire.Broken:
		return s.logOnce(l, f.Event, slog.LevelError, "a sandbox has no network: its stack could not be made")
	}
	return errProtocol
}

// once logs an event the first time that it is told of a link, and takes the second
// for an error of the process.
func (s *stack) logOnce(l *Link, e wire.Event, level slog.Level, text string, args ...any) error {
	if l.reported[e] == s {
		return errProtocol
	}
	if l.reported[e] == nil {
		s.host.log.Log(context.Background(), level, text, args...)
	}
	l.reported[e] = s
	return nil
}
