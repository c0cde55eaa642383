package drivertest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// outboundCases test sandbar.NetworkOutbound. What must stay unreachable is tested by package
// escape. The remote end is this machine's own address, which the cases allow with AllowPrivate;
// nothing is sent anywhere else.
func outboundCases() []testCase {
	needs := []need{needOutbound(), needPython()}
	return []testCase{
		{name: "refused-network", run: outboundRefused},
		{name: "none-by-default", needs: needs, run: outboundNone},
		{name: "tcp", needs: needs, run: outboundTCP},
		{name: "udp", needs: needs, run: outboundUDP},
		{name: "names", needs: needs, run: outboundNames},
		{name: "refused-at-once", needs: needs, run: outboundAnswers},
		{name: "most-connections", needs: needs, run: outboundMost},
		{name: "destroy-during-transfer", needs: needs, run: outboundDestroy},
		{name: "no-way-in", needs: needs, run: outboundNoWayIn},
		{name: "egress", needs: append(needs, needEgress()), run: outboundEgress},
	}
}

// needOutbound depends on the host as much as on the driver: whether this user may make network
// devices.
func needOutbound() need {
	return need{unmet: func(s *suite) string {
		switch {
		case !s.caps.Outbound:
			return "sandboxes of this driver cannot reach out here"
		case worldAddress() == netip.Addr{}:
			return "the host has no address besides loopback"
		}
		return ""
	}}
}

func needEgress() need {
	return need{unmet: func(s *suite) string {
		if !s.caps.Egress {
			return "this driver cannot restrict the network of one sandbox"
		}
		return ""
	}}
}

// worldAddress returns an IPv4 address of the host that is not loopback.
func worldAddress() netip.Addr {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ip, _ := netip.AddrFromSlice(n.IP)
			if ip = ip.Unmap(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				return ip
			}
		}
	}
	return netip.Addr{}
}

// world makes a driver whose sandboxes may reach worldAddress.
func (c *C) world(change ...func(*driver.Outbound)) driver.Driver {
	h := c.s.host(c.dir)
	h.Outbound.AllowPrivate = []netip.Prefix{netip.PrefixFrom(worldAddress(), 32)}
	for _, f := range change {
		f(h.Outbound)
	}
	d, err := c.s.h.New(h)
	c.ok(err, "making a driver")
	c.Cleanup(func() {
		if k, ok := driver.As[driver.Closer](d); ok {
			if err := k.Close(); err != nil {
				c.Errorf("Close: %v", err)
			}
		}
	})
	return d
}

// reaching makes a sandbox with sandbar.NetworkOutbound.
func (c *C) reaching(d driver.Driver) driver.Sandbox {
	spec := c.spec()
	spec.Network = sandbar.NetworkOutbound
	b, err := d.Create(c.ctx, c.newID(), spec)
	c.ok(err, "Create with the network %q", spec.Network)
	c.Cleanup(func() { c.destroy(b) })
	return b
}

// serve serves TCP at worldAddress until the case ends.
func (c *C) serve(f func(*net.TCPConn)) *net.TCPAddr {
	l, err := net.Listen("tcp", net.JoinHostPort(worldAddress().String(), "0"))
	c.ok(err, "Listen")
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(caseBound))
				f(conn.(*net.TCPConn))
			})
		}
	})
	c.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr)
}

func outboundRefused(c *C) {
	for _, n := range []sandbar.Network{"host", "bridge", "outbound ", "OUTBOUND"} {
		spec := c.spec()
		spec.Network = n
		b, err := c.d.Create(c.ctx, c.newID(), spec)
		if err == nil {
			c.destroy(b)
		}
		c.code(err, fmt.Sprintf("Create with the network %q", n), sandbar.Unsupported, sandbar.Invalid)
	}
	spec := c.spec()
	spec.Network = sandbar.NetworkOutbound
	b, err := c.d.Create(c.ctx, c.newID(), spec)
	if err == nil {
		c.destroy(b)
	}
	if claimed := c.d.Caps().Outbound; claimed && err != nil {
		c.Errorf("the driver claims that sandboxes can reach out, and: %v", err)
	} else if !claimed {
		c.code(err, "Create with the network \"outbound\", which the driver does not claim", sandbar.Unsupported)
	}
}

const listInterfaces = `print(*sorted(l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]))`

// A sandbox without NetworkOutbound has no network, on a driver that could give it one.
func outboundNone(c *C) {
	d := c.world()
	spec := c.spec()
	b, err := d.Create(c.ctx, c.newID(), spec)
	c.ok(err, "Create")
	c.Cleanup(func() { c.destroy(b) })
	if r := c.py(b, listInterfaces); r.out != "lo\n" {
		c.Errorf("without a network there are the interfaces %q", r.out)
	}
	if r := c.py(c.reaching(d), listInterfaces); len(strings.Fields(r.out)) != 2 {
		c.Errorf("with a network there are the interfaces %q", r.out)
	}
}

// This case transfers much data in both directions at once; each side half-closes its own
// direction.
func outboundTCP(c *C) {
	size := int64(c.s.few(64, 4)) << 20
	sums := make(chan string, 1)
	at := c.serve(func(conn *net.TCPConn) {
		var back sync.WaitGroup
		back.Go(func() {
			io.Copy(conn, io.LimitReader(&pattern{}, size))
			conn.CloseWrite()
		})
		h := sha256.New()
		n, err := io.Copy(h, conn)
		back.Wait()
		sums <- fmt.Sprintf("%d %s %v", n, hex.EncodeToString(h.Sum(nil)), err)
	})
	r := c.py(c.reaching(c.world()), fmt.Sprintf(`
import hashlib, socket, threading
s = socket.create_connection((%q, %d)); size = %d
block = bytes(i %% 251 for i in range(251 * 4096))
def send():
    left = size
    while left > 0:
        n = min(left, len(block)); s.sendall(block[:n]); left -= n
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
h = hashlib.sha256(); n = 0
while True:
    b = s.recv(1 << 20)
    if not b: break
    h.update(b); n += len(b)
t.join()
print(n, h.hexdigest())`, at.IP, at.Port, size))
	c.exited(r, 0, "the program")
	h := sha256.New()
	io.Copy(h, io.LimitReader(&pattern{}, size))
	want := fmt.Sprintf("%d %s", size, hex.EncodeToString(h.Sum(nil)))
	if r.out != want+"\n" {
		c.Errorf("the program received %s; want %s", sandbar.Quote(r.out, 200), want)
	}
	select {
	case got := <-sums:
		// Each block of the program starts the pattern anew, and 251 divides its length.
		if got != want+" <nil>" {
			c.Errorf("the world received %s; want %s", got, want)
		}
	case <-c.ctx.Done():
		c.Errorf("the world's connection has no end")
	}
}

// pattern repeats the bytes 0 to 250.
type pattern struct{ at int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.at % 251)
		p.at++
	}
	return len(b), nil
}

func outboundUDP(c *C) {
	u, err := net.ListenPacket("udp", net.JoinHostPort(worldAddress().String(), "0"))
	c.ok(err, "ListenPacket")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 65536)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			u.WriteTo(b[:n], from)
		}
	}()
	c.Cleanup(func() {
		u.Close()
		<-ended
	})
	at := u.LocalAddr().(*net.UDPAddr)
	r := c.py(c.reaching(c.world()), fmt.Sprintf(`
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(30)
for n in [1, 0, 512, 1472, 9000, 60000]:
    for attempt in range(20): # datagrams may be lost
        s.sendto(bytes([n %% 251]) * n, (%q, %d))
        s.settimeout(3)
        try: b = s.recv(65536)
        except TimeoutError: continue
        if b == bytes([n %% 251]) * n: print(n); break
`, at.IP, at.Port))
	if r.out != "1\n0\n512\n1472\n9000\n60000\n" {
		c.Errorf("datagrams: got %v", r)
	}
}

// Programs resolve names with the C library, and the operator's name server answers.
func outboundNames(c *C) {
	at := c.serve(func(conn *net.TCPConn) { io.WriteString(conn, "by name") })
	server := c.nameServer(worldAddress())
	b := c.reaching(c.world(func(o *driver.Outbound) { o.DNS = []netip.AddrPort{server} }))
	r := c.py(b, fmt.Sprintf(`
import socket
print(socket.create_connection(("service.example", %d)).recv(100).decode())
try: socket.getaddrinfo("nobody.example", 80); print("found nobody")
except socket.gaierror: print("no such name")
print(socket.gethostbyname("localhost"))`, at.Port))
	if r.out != "by name\nno such name\n127.0.0.1\n" {
		c.Errorf("names: got %v", r)
	}
}

// nameServer answers service.example with an address, and all other names with "no such name".
func (c *C) nameServer(a netip.Addr) netip.AddrPort {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	c.ok(err, "ListenPacket")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1024)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			if q := b[:n]; n > 12 {
				u.WriteTo(nameReply(q, a), from)
			}
		}
	}()
	c.Cleanup(func() {
		u.Close()
		<-ended
	})
	return u.LocalAddr().(*net.UDPAddr).AddrPort()
}

// nameReply returns a name server's answer to a question with one name.
func nameReply(q []byte, a netip.Addr) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5 // the root label, type and class
	if end > len(q) {
		return nil
	}
	r := append([]byte(nil), q[:end]...)
	r[2], r[3] = 0x81, 0x80
	clear(r[6:12])
	kind := binary.BigEndian.Uint16(r[end-4:])
	switch {
	case !strings.Contains(strings.ToLower(string(r[12:end])), "service\x07example"):
		r[3] |= 3
	case kind == 1:
		r[7] = 1
		r = append(r, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4)
		r = append(r, a.AsSlice()...)
	}
	return r
}

// Refused connections get an answer, so programs do not wait. There is no time limit here: a
// program that hangs reaches the limit of the case.
func outboundAnswers(c *C) {
	l, err := net.Listen("tcp", net.JoinHostPort(worldAddress().String(), "0"))
	c.ok(err, "Listen")
	free := l.Addr().(*net.TCPAddr)
	l.Close()
	r := c.py(c.reaching(c.world(func(o *driver.Outbound) { o.DeniedPorts = []uint16{25} })), fmt.Sprintf(`
import errno, socket
for where in [(%q, %d), (%q, 25), ("10.0.0.1", 80), ("192.0.0.1", 80), ("169.254.169.254", 80), ("fd00::1", 80)]:
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    s = socket.socket(family)
    try: s.connect(where); print("connected to", where)
    except OSError as e:
        if e.errno not in (errno.ECONNREFUSED, errno.ENETUNREACH): print(where, e)
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(60)
    try:
        u.connect(where); u.send(b"x"); u.recv(1); print("datagram from", where)
    except OSError as e:
        if e.errno not in (errno.ECONNREFUSED, errno.ENETUNREACH): print("datagram", where, e)
print("done")`, free.IP, free.Port, free.IP))
	if r.out != "done\n" {
		c.Errorf("got %v", r)
	}
}

func outboundMost(c *C) {
	at := c.serve(func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	r := c.py(c.reaching(c.world(func(o *driver.Outbound) { o.MaxConnections = 20 })), fmt.Sprintf(`
import socket
s = []; refused = 0
for i in range(50):
    try: s.append(socket.create_connection((%q, %d)))
    except ConnectionRefusedError: refused += 1
print(len(s), refused)
for c in s: c.close()`, at.IP, at.Port))
	if r.out != "20 30\n" {
		c.Errorf("of 50 connections, 20 being allowed, were made and refused: %v", r)
	}
}

// The case destroys a sandbox during transfers. The suite finds connections that remain.
func outboundDestroy(c *C) {
	var mu sync.Mutex
	cut := 0
	at := c.serve(func(conn *net.TCPConn) {
		io.Copy(conn, &pattern{})
		mu.Lock()
		cut++
		mu.Unlock()
	})
	b := c.reaching(c.world())
	var out buffer
	c.start(b, sandbar.Cmd{Args: []string{c.s.python, "-c", fmt.Sprintf(`
import socket
s = [socket.create_connection((%q, %d)) for i in range(8)]
for i in range(200):
    for c in s: c.recv(100000)
print("it runs", flush=True)
while True:
    for c in s: c.recv(100000)`, at.IP, at.Port)}}, driver.Stdio{Stdout: &out, Stderr: &out})
	c.until(out.has("it runs"), "the transfers are under way: %s", out.String())
	c.destroy(b)
	c.until(func() bool {
		mu.Lock()
		defer mu.Unlock()
		return cut == 8
	}, "all connections of the destroyed sandbox are cut")
}

// A neighbour cannot reach a program that listens at the sandbox's address: it has the same address
// itself. The host has no route to that address.
func outboundNoWayIn(c *C) {
	d := c.world()
	a, b := c.reaching(d), c.reaching(d)
	var out buffer
	c.start(a, sandbar.Cmd{Args: []string{c.s.python, "-c", `
import socket, struct, fcntl
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("198.51.100.1", 9)); own = s.getsockname()[0]
l = socket.create_server(("0.0.0.0", 0))
print(own, l.getsockname()[1], "listens", flush=True)
while True: l.accept()[0].sendall(b"somebody came in")`}}, driver.Stdio{Stdout: &out, Stderr: &out})
	c.until(out.has("listens"), "the program listens: %s", out.String())
	var own string
	var port int
	fmt.Sscanf(out.String(), "%s %d", &own, &port)
	r := c.py(b, fmt.Sprintf(`
import socket
try: print(socket.create_connection((%q, %d), timeout=60).recv(100))
except OSError as e: print("no")`, own, port))
	if r.out != "no\n" {
		c.Errorf("a neighbour reaches into the sandbox: %v", r)
	}
}

// A sandbox reaches what its Spec's Egress allows, and then what Restrict allows. A connection that
// Restrict denies ends.
func outboundEgress(c *C) {
	at := c.serve(func(conn *net.TCPConn) { io.Copy(conn, conn) })
	d := c.world()
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	spec := c.spec()
	spec.Network, spec.Egress = sandbar.NetworkOutbound, &sandbar.Egress{Deny: all}
	b, err := d.Create(c.ctx, c.newID(), spec)
	c.ok(err, "Create with an Egress")
	c.Cleanup(func() { c.destroy(b) })
	connect := fmt.Sprintf(`
import socket
try: s = socket.create_connection((%q, %d)); s.sendall(b"x"); print(s.recv(1).decode())
except OSError as e: print(type(e).__name__)`, at.IP, at.Port)
	if r := c.py(b, connect); r.out != "ConnectionRefusedError\n" {
		c.Errorf("a denied address: got %v", r)
	}
	restrict := func(e sandbar.Egress) {
		k, ok := driver.As[driver.Restricter](b)
		if !ok {
			c.Fatalf("the sandbox is no Restricter")
		}
		c.ok(k.Restrict(c.ctx, e), "Restrict")
	}
	restrict(sandbar.Egress{Deny: all, Allow: []netip.Prefix{netip.PrefixFrom(worldAddress(), 32)}})
	if r := c.py(b, connect); r.out != "x\n" {
		c.Errorf("an allowed address: got %v", r)
	}
	var out buffer
	c.start(b, sandbar.Cmd{Args: []string{c.s.python, "-c", fmt.Sprintf(`
import socket
s = socket.create_connection((%q, %d)); print("connected", flush=True)
try: print(s.recv(1))
except OSError as e: print(type(e).__name__, flush=True)`, at.IP, at.Port)}}, driver.Stdio{Stdout: &out, Stderr: &out})
	c.until(out.has("connected"), "a connection: %s", out.String())
	restrict(sandbar.Egress{Deny: all})
	c.until(out.has("ConnectionResetError"), "the connection ends: %s", out.String())
	if r := c.py(b, connect); r.out != "ConnectionRefusedError\n" {
		c.Errorf("an address that is denied again: got %v", r)
	}
}
