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

	// Guarded by host.mu: the links that the process has open, including those it was asked to
	// release.
	links map[uint32]*Link
}

// headBuffer keeps the first bytes of a process's standard error output.
type headBuffer struct {
	mu sync.Mutex
	b  []byte
}

// maxStderr is the number of bytes kept.
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

// stackEnvironment disables runtime features that re-read files, since the process cannot open
// files.
func stackEnvironment() []string {
	return []string{"GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
}

// startTimeout bounds the time until the process has confined itself.
const startTimeout = 30 * time.Second

// startStack starts a process and waits until it has confined itself.
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
	theirs.Close() // so that the end of the process closes the connection
	late := time.AfterFunc(startTimeout, s.kill)
	defer late.Stop()
	f, err := conn.ReceiveBare()
	if err == nil && f.Kind != wire.Ready {
		err = errProtocol
	}
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Internal, Err: s.end(err), Message: "the network process does not start",
			Fix: "use the network \"none\", or fix the cause"}
	}
	return s, nil
}

// errProtocol is the error of an unexpected frame.
var errProtocol = errors.New("the network process violated the protocol")

func (s *stack) kill() { s.process.Kill() }

// ended is closed when the process has exited.
func (s *stack) ended() <-chan struct{} { return s.process.Ended() }

// end kills the process and returns err with its exit status and its standard error output.
func (s *stack) end(err error) error {
	s.kill()
	<-s.ended()
	s.conn.Close()
	s.host.mu.Lock()
	for _, l := range s.links {
		l.stack, l.pending = nil, nil
	}
	s.host.mu.Unlock()
	return fmt.Errorf("%w (%v) %s", err, s.process.Err(), strconv.Quote(s.stderr.String()))
}

// send sends a frame. If that fails it kills the process, which is then restarted and gets all
// links again.
func (s *stack) send(f wire.Frame, fds ...int) {
	if s.conn.Send(f, fds...) != nil {
		s.kill()
	}
}

// sendRules sends the operator's rules.
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

// attach passes a link to the process. The caller holds host.mu.
func (s *stack) attach(l *Link) {
	l.stack, s.links[l.id] = s, l
	s.send(wire.Frame{Kind: wire.Attach, Link: l.id, Allow: l.limits.Allow, Deny: l.limits.Deny}, l.device, l.ledger)
}

// pollInterval is the interval of reading the host's name servers and of checking for links. After
// two checks without links the process is ended.
const pollInterval = 2500 * time.Millisecond

// poll keeps the process's name servers current until the process ends (over) or ctx ends, with
// which it kills the process. It reports whether the process was retired for lack of links.
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

// listen handles the frames of the process until the connection ends.
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

// handle handles a frame. An unexpected one is an error, so a process can cause at most a fixed
// number of actions per link in the daemon.
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
	case f.Kind == wire.Restricted && len(l.pending) > 0:
		close(l.pending[0])
		l.pending = l.pending[1:]
		return nil
	case f.Kind == wire.Note && f.Event == wire.UsedUp:
		return s.logOnce(l, f.Event, slog.LevelInfo, "a sandbox has reached its limit of sent and received bytes", "bytes", s.host.rules.MaxBytes)
	case f.Kind == wire.Note && f.Event == wire.Broken:
		return s.logOnce(l, f.Event, slog.LevelError, "a sandbox has no network: its TCP/IP stack could not be created")
	}
	return errProtocol
}

// logOnce logs an event of a link once. A second report by the same process is a protocol
// violation.
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
