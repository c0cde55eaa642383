package netstack

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.CloseWrite()
}

func TestTCPEcho(t *testing.T) {
	g := newGuest(t, rules())
	for _, at := range []string{"127.0.0.1:0", "127.0.0.77:0", "[::1]:0"} {
		c := g.mustTCP(world(t, at, echo))
		for _, n := range []int{0, 1, 100, 65480, 65481, 300000} {
			sent := bytes.Repeat([]byte{byte(n)}, n)
			go c.Write(sent)
			got := make([]byte, n)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%s: %d bytes: %v", at, n, err)
			}
		}
		c.CloseWrite()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: after the end: %d, %v", at, n, err)
		}
	}
}

// Bulk data in both directions at once arrives complete and in order.
func TestTCPVolume(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 16 << 20
	}
	type sum [sha256.Size]byte
	// stream writes size bytes that depend on seed and returns their checksum.
	stream := func(w io.Writer, seed uint64) (s sum, err error) {
		h := sha256.New()
		src := rand.NewChaCha8([32]byte{byte(seed)})
		n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(h, w)}, struct{ io.Reader }{io.LimitReader(src, size)}, make([]byte, 256<<10))
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes", n)
		}
		return sum(h.Sum(nil)), err
	}
	take := func(r io.Reader) (sum, error) {
		h := sha256.New()
		n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 256<<10))
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes", n)
		}
		return sum(h.Sum(nil)), err
	}
	// both sends and receives at once, over one connection.
	both := func(c interface {
		io.ReadWriter
		CloseWrite() error
	}, seed uint64) (sent, got sum) {
		var all sync.WaitGroup
		all.Go(func() {
			var err error
			if sent, err = stream(c, seed); err != nil {
				t.Errorf("sending %d: %v", seed, err)
			}
			c.CloseWrite()
		})
		got, err := take(c)
		if err != nil {
			t.Errorf("receiving by %d: %v", seed, err)
		}
		all.Wait()
		return sent, got
	}
	type outcome struct{ sent, got sum }
	there := make(chan outcome, 1)
	g := newGuest(t, rules())
	c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
		s, r := both(c, 1)
		there <- outcome{s, r}
	}))
	s, r := both(c, 2)
	o := <-there
	if s != o.got || r != o.sent {
		t.Error("what arrived is not what was sent")
	}
}

// A thousand concurrent connections each get their own bytes.
func TestTCPMany(t *testing.T) {
	many := 1000
	if testing.Short() {
		many = 100
	}
	g := newGuest(t, rules())
	to := world(t, "127.0.0.1:0", echo)
	conns := make([]io.ReadWriteCloser, many)
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			c, err := g.tcp(to)
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			conns[i] = c
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if n := g.link.conns.now.Load(); n != int64(many) {
		t.Errorf("%d connections are counted, %d are there", n, many)
	}
	for i, c := range conns {
		all.Go(func() {
			defer c.Close()
			var b [1000]byte
			binary.BigEndian.PutUint64(b[500:], uint64(i))
			c.Write(b[:])
			var got [1000]byte
			if _, err := io.ReadFull(c, got[:]); err != nil || got != b {
				t.Errorf("connection %d: %v, or somebody else's bytes", i, err)
			}
		})
	}
	all.Wait()
	until(t, "closed connections give their places back", func() bool { return g.link.conns.now.Load() == 0 })
}

// Each side can half-close first, and the other direction continues.
func TestTCPHalfClose(t *testing.T) {
	g := newGuest(t, rules())
	t.Run("the program first", func(t *testing.T) {
		c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
			b, err := io.ReadAll(c)
			if err != nil || string(b) != "question" {
				t.Errorf("the world got %q, %v", b, err)
			}
			c.Write([]byte("answer"))
		}))
		c.Write([]byte("question"))
		c.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "answer" {
			t.Errorf("the program got %q, %v", b, err)
		}
	})
	t.Run("the world first", func(t *testing.T) {
		got := make(chan string, 1)
		c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
			c.Write([]byte("banner"))
			c.CloseWrite()
			b, _ := io.ReadAll(c)
			got <- string(b)
		}))
		if b, err := io.ReadAll(c); err != nil || string(b) != "banner" {
			t.Errorf("the program got %q, %v", b, err)
		}
		c.Write([]byte("late"))
		c.CloseWrite()
		if s := <-got; s != "late" {
			t.Errorf("the world got %q", s)
		}
	})
}

// If a program does not read, the outside sender blocks and no byte is lost. The same holds for
// many small pieces.
func TestTCPSlowReader(t *testing.T) {
	for _, piece := range []int{1, 100, 1 << 20} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			total := min(piece*20000, 64<<20)
			g := newGuest(t, rules())
			var sent atomic.Int64
			c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
				b := make([]byte, piece)
				for n := 0; n < total; n += piece {
					for i := range b {
						b[i] = byte((n + i) % 251)
					}
					if _, err := c.Write(b); err != nil {
						t.Error(err)
						return
					}
					sent.Add(int64(piece))
				}
			}))
			if total > 32<<20 {
				// The sender has stopped: two readings, some time apart, are equal.
				last := int64(-1)
				until(t, "the world is held back", func() bool {
					now := sent.Load()
					same := now == last && now > 0
					last = now
					time.Sleep(20 * time.Millisecond)
					return same
				})
				if last >= int64(total) {
					t.Fatal("all of it was taken although nobody read")
				}
			}
			r := make([]byte, 64<<10)
			n := 0
			for {
				k, err := c.Read(r)
				for _, x := range r[:k] {
					if x != byte(n%251) {
						t.Fatalf("byte %d is wrong", n)
					}
					n++
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n != total {
				t.Errorf("%d bytes of %d arrived", n, total)
			}
		})
	}
}

// If the outside receiver does not read, the program blocks, and the stack's memory is bounded.
func TestTCPSlowWorld(t *testing.T) {
	g := newGuest(t, rules())
	read := make(chan struct{})
	got := make(chan int64, 1)
	c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
		<-read
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}))
	var sent atomic.Int64
	const total = 64 << 20
	ended := make(chan error, 1)
	go func() {
		b := make([]byte, 1<<20)
		for sent.Load() < total {
			n, err := c.Write(b)
			sent.Add(int64(n))
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- c.CloseWrite()
	}()
	last := int64(-1)
	until(t, "the program is held back", func() bool {
		now := sent.Load()
		same := now == last && now > 0
		last = now
		time.Sleep(20 * time.Millisecond)
		return same
	})
	if last >= total {
		t.Error("all of it was taken although nobody read")
	}
	close(read)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := <-got; n != total {
		t.Errorf("%d bytes of %d arrived", n, total)
	}
}

// A denied address and a port without a listener are answered, and no connection is made.
func TestTCPRefused(t *testing.T) {
	g := newGuest(t, rules())
	var reached atomic.Int64
	to := world(t, "127.0.0.1:0", func(*net.TCPConn) { reached.Add(1) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().(*net.TCPAddr).AddrPort()
	closed.Close()
	port := func(a string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), to.Port()) }
	for name, a := range map[string]netip.AddrPort{
		"nobody listens":      nobody,
		"a private range":     port("10.0.0.1"),
		"metadata":            netip.MustParseAddrPort("169.254.169.254:80"),
		"metadata of IPv6":    netip.MustParseAddrPort("[fd00:ec2::254]:80"),
		"a translator":        port("64:ff9b::10.0.0.1"),
		"mail":                netip.MustParseAddrPort("127.0.0.1:25"),
		"the gateway":         port(wire.Gateway.String()),
		"the gateway of IPv6": port(wire.Gateway6.String()),
		"a neighbour's link":  port("192.0.0.3"),
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := g.tcp(a); err == nil {
				c.Close()
				t.Errorf("connected to %v", a)
			}
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections came to a server", n)
	}
	// By default the loopback is denied, by any of its addresses.
	g = newGuest(t, rulesOfNobody())
	for _, a := range []string{"127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"} {
		if c, err := g.tcp(port(a)); err == nil {
			c.Close()
			t.Errorf("connected to %v", a)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections came to a server", n)
	}
}

// Package net treats the unspecified address as the loopback; the policy is checked first.
func TestDialUnspecified(t *testing.T) {
	h := newHostFor(t, rules())
	to := world(t, "127.0.0.1:0", func(*net.TCPConn) { t.Error("a connection came") })
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for _, network := range []string{"tcp", "udp"} {
			c, err := h.dial(t.Context(), network, netip.AddrPortFrom(a, to.Port()), h.policy.Check)
			var d *Denied
			if !errors.As(err, &d) {
				t.Errorf("%s to %v: %v", network, a, err)
			}
			if err == nil {
				c.Close()
			}
		}
	}
}

// A reset is forwarded in both directions.
func TestTCPReset(t *testing.T) {
	g := newGuest(t, rules())
	t.Run("the world's", func(t *testing.T) {
		c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
			c.Read(make([]byte, 1))
			c.SetLinger(0)
		}))
		c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); !isReset(err) || err == io.EOF {
			t.Errorf("the program got %v", err)
		}
	})
	t.Run("the program's", func(t *testing.T) {
		got := make(chan error, 1)
		c := g.mustTCP(world(t, "127.0.0.1:0", func(c *net.TCPConn) {
			c.Write([]byte("unread"))
			_, err := c.Read(make([]byte, 1))
			got <- err
		}))
		until(t, "something to leave unread", func() bool {
			one := make([]byte, 1)
			n, _ := c.Read(one)
			return n == 1
		})
		c.Close() // closing with unread bytes causes a reset
		if err := <-got; !isReset(err) {
			t.Errorf("the world got %v", err)
		}
	})
	until(t, "the places are given back", func() bool { return g.link.conns.now.Load() == 0 })
}

// Connections beyond the bound are refused. When one ends, another is accepted.
func TestTCPBound(t *testing.T) {
	o := rules()
	o.MaxConnections = 3
	g := newGuest(t, o)
	to := world(t, "127.0.0.1:0", echo)
	var open []io.Closer
	for range 3 {
		open = append(open, g.mustTCP(to))
	}
	if c, err := g.tcp(to); err == nil {
		c.Close()
		t.Error("there is a fourth connection")
	}
	open[0].Close()
	until(t, "a place is free", func() bool {
		c, err := g.tcp(to)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// The daemon's bound applies to all sandboxes together.
func TestHostBound(t *testing.T) {
	h := newHostFor(t, rules())
	h.sockets.most = 3
	a, b := h.guest(t), h.guest(t)
	to := world(t, "127.0.0.1:0", echo)
	a.mustTCP(to)
	a.mustTCP(to)
	last := b.mustTCP(to)
	for _, g := range []*guest{a, b} {
		if c, err := g.tcp(to); err == nil {
			c.Close()
			t.Error("there is a fourth descriptor")
		}
	}
	a.close()
	if _, err := last.Write([]byte("x")); err != nil {
		t.Errorf("a neighbour's end has ended this connection: %v", err)
	}
	b.mustTCP(to)
}

// A sandbox that has used all its bytes loses its connections and gets no others; its neighbour is
// unaffected.
func TestBytesBound(t *testing.T) {
	o := rules()
	o.MaxBytes = 1 << 20
	h := newHostFor(t, o)
	a, b := h.guest(t), h.guest(t)
	to := world(t, "127.0.0.1:0", echo)
	other := b.mustTCP(to)
	c := a.mustTCP(to)
	piece := make([]byte, 64<<10)
	sent := 0
	var err error
	for err == nil && sent < 16<<20 {
		var n int
		n, err = c.Write(piece)
		sent += n
		if err == nil {
			_, err = io.ReadFull(c, piece)
		}
	}
	if !isReset(err) || sent > 1<<20 || sent < 1<<18 {
		t.Errorf("after %d bytes: %v", sent, err)
	}
	if c, err := a.tcp(to); err == nil {
		c.Close()
		t.Error("it can connect again")
	}
	u := a.mustUDP(to)
	u.Write([]byte("x"))
	refused(t, u)
	if _, err := other.Write([]byte("x")); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	if _, err := io.ReadFull(other, piece[:1]); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

// For any number of connections the buffers take at most twice the memory bound.
func TestShare(t *testing.T) {
	g := budget{most: buffers}
	var all []int64
	var sum int64
	for range 1024 {
		n := g.share(leastBuffer, mostBuffer)
		if n < leastBuffer || n > mostBuffer {
			t.Fatalf("a share of %d", n)
		}
		all = append(all, n)
		sum += n
	}
	if sum > buffers+1024*leastBuffer || all[0] != mostBuffer || all[1023] != leastBuffer {
		t.Errorf("%d bytes together, the first %d, the last %d", sum, all[0], all[1023])
	}
	for _, n := range all {
		g.release(n)
	}
	if g.now.Load() != 0 || !g.reserve(buffers) || g.reserve(1) {
		t.Error("what was given back is not there, or more than that")
	}
}

// Closing the link during transfers resets them on both sides.
func TestCloseDuringTransfer(t *testing.T) {
	g := newGuest(t, rules())
	var ends sync.WaitGroup
	var moved atomic.Int64
	to := world(t, "127.0.0.1:0", func(c *net.TCPConn) {
		defer ends.Done()
		b := make([]byte, 64<<10)
		for {
			n, err := c.Write(b)
			moved.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	silent := world(t, "127.0.0.1:0", func(c *net.TCPConn) {
		defer ends.Done()
		if _, err := c.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("the world was not cut off: %v", err)
		}
	})
	ends.Add(20)
	for range 10 {
		c := g.mustTCP(to)
		go io.Copy(io.Discard, c)
		g.mustTCP(silent)
	}
	until(t, "something moves", func() bool { return moved.Load() > 1<<20 })
	var twice sync.WaitGroup
	twice.Go(g.close)
	twice.Go(g.close)
	twice.Wait()
	ends.Wait()
}

// Repeatedly opened and closed links with open connections leak nothing.
func TestLinksComeAndGo(t *testing.T) {
	h := newHostFor(t, rules())
	to := world(t, "127.0.0.1:0", echo)
	for range 30 {
		g := h.guest(t)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if c, err := g.tcp(to); err == nil {
					c.Write([]byte("x"))
					c.Close()
				} else if !errors.Is(err, net.ErrClosed) && g.link.ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		g.close()
	}
}

// Packets that a kernel sends by itself do not create the stack.
func TestIdle(t *testing.T) {
	g := newGuest(t, rules())
	solicit := make([]byte, ipv6Header+8)
	solicit[0], solicit[6] = 6<<4, 58 // ICMPv6, a router solicitation
	copy(solicit[8:], wire.Address6.Addr().AsSlice())
	report := make([]byte, ipv4Header+8)
	report[0], report[9] = 4<<4|5, 2 // IGMP
	copy(report[12:], wire.Address.Addr().AsSlice())
	stranger := make([]byte, ipv4Header+20)
	stranger[0], stranger[9] = 4<<4|5, protoTCP
	copy(stranger[12:], []byte{10, 0, 0, 1})
	for _, p := range [][]byte{{}, {0}, {4 << 4}, {6 << 4}, solicit, solicit[:39], report, stranger, stranger[:19]} {
		g.link.deliver(p)
	}
	if g.link.stack != nil {
		t.Error("there is a stack, and nobody has sent anything")
	}
}

// Arbitrary packets do no harm.
func FuzzDeliver(f *testing.F) {
	f.Add([]byte{}, false)
	syn := make([]byte, ipv4Header+20)
	copy(syn, []byte{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 0, 2, 127, 0, 0, 1, 0xc0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff})
	f.Add(syn, true)
	ask := make([]byte, ipv4Header+8+17)
	copy(ask, []byte{0x45, 0, 0, 45, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 0, 2, 192, 0, 0, 1, 0xc0, 0, 0, 53, 0, 25, 0, 0, 1, 2, 1, 0, 0, 1})
	f.Add(ask, true)
	six := make([]byte, ipv6Header+8)
	copy(six, []byte{0x60, 0, 0, 0, 0, 8, 44, 64})
	copy(six[8:], wire.Address6.Addr().AsSlice())
	f.Add(six, false)
	f.Fuzz(func(t *testing.T, p []byte, ours bool) {
		if ours && len(p) >= ipv4Header {
			copy(p[12:], wire.Address.Addr().AsSlice())
		}
		h := newHostFor(t, rulesOfNobody())
		g := h.guest(t)
		g.link.deliver(p)
		g.close()
	})
}
