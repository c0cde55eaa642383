package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
	"github.com/sandbar-dev/sandbar/internal/process/child"
)

// Host provides network access to all sandboxes of one daemon. It is safe for concurrent use.
type Host struct {
	rules driver.Outbound
	log   *slog.Logger

	ctx        context.Context // ends with the Host
	stop       context.CancelFunc
	supervisor sync.WaitGroup // the goroutine of supervise

	mu      sync.Mutex
	closed  bool
	started *firstStart // nil: no process was requested
	stack   *stack      // nil: no process runs
	links   map[uint32]*Link
	last    uint32
}

// New creates a Host. Invalid: a rule is malformed. Unsupported: the kernel refuses netlink route
// queries, or this program cannot start itself as the stack's process.
func New(o driver.Outbound, log *slog.Logger) (*Host, error) {
	if err := checkRules(o); err != nil {
		return nil, err
	}
	if !child.Claimed(wire.Name) {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "sandboxes cannot be given a network: this program does not call sandbox.Self",
			Fix: "call sandbox.Self at the beginning of main"}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "sandboxes cannot be given a network: a netlink socket: %w", err)
	}
	unix.Close(fd)
	if o.MaxConnections <= 0 {
		o.MaxConnections = driver.DefaultMaxConnections
	}
	o.MaxBytes = max(o.MaxBytes, 0)
	h := &Host{rules: o, log: log, links: map[uint32]*Link{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h, nil
}

func checkRules(o driver.Outbound) error {
	for _, list := range []struct {
		field string
		from  []netip.Prefix
	}{{"network.allow_private", o.AllowPrivate}, {"network.deny", o.Deny}} {
		for _, x := range list.from {
			if !wire.ValidRange(x) {
				return &sandbar.Error{Code: sandbar.Invalid, Field: list.field,
					Message: sandbar.Quote(x.String(), 60) + " is not an address range",
					Fix:     "write it as 10.1.0.0/16 or fd12:3456::/32, with nothing but zeros after the prefix"}
			}
		}
		if len(list.from) > wire.MaxRules {
			return tooMany(list.field, len(list.from), wire.MaxRules)
		}
	}
	if n := len(o.DeniedPorts); n > wire.MaxRules {
		return tooMany("network.ports_denied", n, wire.MaxRules)
	}
	if o.MaxConnections > wire.MaxConnections {
		return tooMany("network.max_connections", o.MaxConnections, wire.MaxConnections)
	}
	return nil
}

func tooMany(field string, n, most int) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: fmt.Sprintf("%d is too many; at most %d are possible", n, most)}
}

// Close ends the stack's process and releases the Host's resources. All its Links must be closed.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	h.supervisor.Wait()
	return nil
}

// Attach takes ownership of fd, a TUN device (IFF_TUN with IFF_NO_PI) or a connected stream socket
// with packets (wire.PacketReader of internal/agent), and forwards its packets until Close, as far
// as limits allow; nil: as the operator's rules do. On failure it closes fd. The first call starts
// the stack's process and returns the error of that start; later, a device waits for the process to
// be restarted.
func (h *Host) Attach(fd int, limits *sandbar.Egress) (*Link, error) {
	l, err := h.newLink(fd)
	if err != nil {
		return nil, err
	}
	if limits != nil {
		l.limits = *limits
	}
	for {
		if err := h.ensureStarted(); err != nil {
			l.release()
			return nil, err
		}
		h.mu.Lock()
		if h.started != nil {
			break
		}
		h.mu.Unlock() // the process was ended in between, for lack of links
	}
	defer h.mu.Unlock()
	h.last++
	l.id = h.last
	h.links[l.id] = l
	if h.stack != nil {
		h.stack.attach(l)
	}
	return l, nil
}

// ensureStarted starts the process unless it was started before, and waits for it.
func (h *Host) ensureStarted() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return sandbar.Errorf(sandbar.Unavailable, "the network is closed")
	}
	s := h.started
	if s == nil {
		s = &firstStart{done: make(chan struct{})}
		h.started = s
		h.supervisor.Go(func() { h.supervise(s) })
	}
	h.mu.Unlock()
	<-s.done
	return s.err
}

// firstStart is the first start of a process.
type firstStart struct {
	done chan struct{} // closed when the process runs or has failed to start
	err  error         // why it has failed; valid after done
}

// Pause before a restart. It doubles with each process that ends within stableAfter.
const (
	minRestartPause = 100 * time.Millisecond
	maxRestartPause = 30 * time.Second
	stableAfter     = time.Minute
)

// supervise keeps a process running until the Host is closed or there are no links. If the first
// start fails it returns; the next Attach tries again.
func (h *Host) supervise(started *firstStart) {
	pause := minRestartPause
	for n := 0; h.ctx.Err() == nil; n++ {
		begun := time.Now()
		s, err := h.startStack()
		if n == 0 {
			if started.err = err; err != nil {
				h.mu.Lock()
				h.started = nil
				h.mu.Unlock()
			}
			close(started.done)
			if err != nil {
				return
			}
		}
		if err == nil {
			err = h.serveStack(s)
		}
		if h.ctx.Err() != nil || err == errIdle {
			return
		}
		if time.Since(begun) > stableAfter {
			pause = minRestartPause
		}
		h.log.Warn("the network process has ended; sandboxes' connections are cut; restarting it",
			"error", err, "pause", pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-h.ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, maxRestartPause)
	}
}

// serveStack passes the rules and all links to a process, and waits for its end or the Host's.
func (h *Host) serveStack(s *stack) error {
	over := make(chan error, 1)
	go func() { over <- s.listen() }()
	if s.sendRules(h.rules) != nil {
		s.kill()
	}
	h.mu.Lock()
	h.stack = s
	waiting := slices.Collect(maps.Keys(h.links))
	h.mu.Unlock()
	for _, id := range waiting { // one at a time, because listen needs the lock too
		h.mu.Lock()
		if l := h.links[id]; l != nil && l.stack == nil {
			s.attach(l)
		}
		h.mu.Unlock()
	}
	retired := s.poll(h.ctx, h.rules.DNS, over)
	h.mu.Lock()
	if h.stack == s {
		h.stack = nil
	}
	h.mu.Unlock()
	if retired {
		s.kill()
	}
	err := s.end(<-over)
	if retired {
		return errIdle
	}
	return err
}

// errIdle is the end of a process without links.
var errIdle = errors.New("there are no links")

// retireIfIdle reports whether there are no links. If so it forgets the process, and the next
// Attach starts another.
func (h *Host) retireIfIdle(s *stack) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.links) > 0 || len(s.links) > 0 || h.stack != s {
		return false
	}
	h.started, h.stack = nil, nil
	return true
}
