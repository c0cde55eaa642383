package netstack

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/confine"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
	"github.com/sandbar-dev/sandbar/internal/process/child"
)

// Main runs the network process and does not return, if this process was started as one. Otherwise
// it declares to package child that this program can be started as one.
func Main() {
	if len(os.Args) != 1 || os.Args[0] != wire.Name {
		child.Claim(wire.Name)
		return
	}
	if err := serve(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// serve serves the daemon's connection, descriptor 0, until it ends, and with it the process.
func serve() error {
	// Only the daemon ends this process, not signals to its process group.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	debug.SetGCPercent(50)
	c, err := wire.NewConn(os.Stdin)
	if err != nil {
		return err
	}
	routes, err := openRoutes()
	if err != nil {
		return err
	}
	if err := confine.Network(); err != nil {
		return err
	}
	if err := c.Send(wire.Frame{Kind: wire.Ready}); err != nil {
		return err
	}
	rules, err := receiveRules(c)
	if err != nil {
		return err
	}
	s := &server{conn: c, host: newHost(rules, routes), links: map[uint32]*Link{}}
	s.host.note = func(link uint32, e wire.Event) {
		// an error means that the connection is lost, which ends the process
		_ = c.Send(wire.Frame{Kind: wire.Note, Link: link, Event: e})
	}
	s.host.discovers = true
	go s.host.discover(context.Background())
	return s.run()
}

// errProtocol is the error of an unexpected frame.
var errProtocol = errors.New("the daemon broke the protocol")

// receiveRules receives frames up to Start.
func receiveRules(c *wire.Conn) (o driver.Outbound, err error) {
	for {
		f, _, err := c.Receive()
		switch {
		case err != nil:
			return o, err
		case f.Kind == wire.Rules:
			o.AllowPrivate, o.Deny = append(o.AllowPrivate, f.Allow...), append(o.Deny, f.Deny...)
			o.DeniedPorts = append(o.DeniedPorts, f.Ports...)
			if max(len(o.AllowPrivate), len(o.Deny), len(o.DeniedPorts)) > wire.MaxRules {
				return o, errProtocol
			}
		case f.Kind == wire.Start:
			o.MaxConnections, o.MaxBytes = int(f.MaxConnections), int64(f.MaxBytes)
			return o, nil
		default:
			return o, errProtocol
		}
	}
}

// server handles the daemon's frames.
type server struct {
	conn *wire.Conn
	host *Host

	mu    sync.Mutex
	links map[uint32]*Link
}

func (s *server) run() error {
	for {
		f, fds, err := s.conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch f.Kind {
		case wire.Names:
			s.host.names.set(f.Servers)
		case wire.Attach:
			err = s.attach(f.Link, restriction{f.Allow, f.Deny}, fds[0], os.NewFile(uintptr(fds[1]), "ledger"))
		case wire.Restrict:
			err = s.restrict(f.Link, restriction{f.Allow, f.Deny})
		case wire.Detach:
			err = s.detach(f.Link)
		default:
			err = errProtocol
		}
		if err != nil {
			return err
		}
	}
}

// attach starts to forward a device's packets. A link whose ledger cannot be read is not forwarded,
// because its byte count is unknown.
func (s *server) attach(id uint32, limit restriction, tun int, file *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.links[id]; there {
		return errProtocol
	}
	dev, err := s.host.newDevice(tun)
	if err != nil {
		file.Close()
		s.links[id] = nil
		s.host.note(id, wire.Broken)
		return nil
	}
	book, charged, left, err := newLedger(file, s.host.most)
	if err != nil {
		file.Close()
		dev.Close()
		s.links[id] = nil
		s.host.note(id, wire.Broken)
		return nil
	}
	s.links[id] = s.host.attach(id, dev, limit, book, charged, left)
	return nil
}

// restrict replaces the restriction of a link and reports that it is in force.
func (s *server) restrict(id uint32, r restriction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, there := s.links[id]
	if !there {
		return errProtocol
	}
	if l != nil {
		l.restrict(r)
	}
	return s.conn.Send(wire.Frame{Kind: wire.Restricted, Link: id})
}

// detach closes a link and reports that nothing of it is left.
func (s *server) detach(id uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, there := s.links[id]
	if !there {
		return errProtocol
	}
	delete(s.links, id)
	go func() {
		if l != nil {
			_ = l.Close() // the descriptor is closed in any case
		}
		// an error means that the connection is lost, which ends the process
		_ = s.conn.Send(wire.Frame{Kind: wire.Detached, Link: id})
	}()
	return nil
}
