package drivertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// dialCases test connections to ports inside a sandbox.
func dialCases() []testCase {
	dialer := needAbility[driver.Dialer]("Dialer")
	return []testCase{
		{name: "echo", needs: []need{dialer, needPython()}, run: dialEcho},
		{name: "bad-ports", needs: []need{dialer}, run: func(c *C) {
			for _, port := range []int{0, -1, 65536, 1 << 30, -1 << 31} {
				c.code(dial(c, c.box(), port), fmt.Sprintf("DialPort(%d)", port), sandbar.Invalid)
			}
		}},
		{name: "nobody-listens", needs: []need{dialer}, run: func(c *C) {
			l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free on the host, too
			c.ok(err, "Listen")
			port := l.Addr().(*net.TCPAddr).Port
			l.Close()
			c.code(dial(c, c.box(), port), "DialPort without a listener", sandbar.Unavailable)
		}},
		{name: "hosts-port", needs: []need{dialer}, run: dialHost},
		{name: "neighbours-port", needs: []need{dialer, needPython(), needClaim("a private network", func(k driver.Caps) bool { return k.PrivateNetwork })}, run: func(c *C) {
			a, b := c.box(), c.box()
			port := listenInside(c, a)
			c.code(dial(c, b, port), "DialPort of a port in another sandbox", sandbar.Unavailable)
		}},
		{name: "cancelled", needs: []need{dialer}, run: func(c *C) {
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			d, _ := driver.As[driver.Dialer](c.box())
			conn, err := d.DialPort(ctx, 80)
			if err == nil {
				conn.Close()
			}
			c.code(err, "DialPort with a context that has ended", sandbar.Canceled, sandbar.Timeout)
		}},
	}
}

// dial connects and closes the connection.
func dial(c *C, b driver.Sandbox, port int) error {
	d, _ := driver.As[driver.Dialer](b)
	conn, err := d.DialPort(c.ctx, port)
	if err == nil {
		conn.Close()
	}
	return err
}

// listenInside starts an echo server in a sandbox and returns its port.
func listenInside(c *C, b driver.Sandbox) int {
	var out buffer
	c.start(b, sandbar.Cmd{Args: []string{c.s.python, "-c", `
import socket, threading
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen()
print(l.getsockname()[1], "is it", flush=True)
def serve(s):
    while True:
        b = s.recv(65536)
        if not b: break
        s.sendall(b)
    s.close()
while True: threading.Thread(target=serve, args=[l.accept()[0]], daemon=True).start()`}}, driver.Stdio{Stdout: &out, Stderr: &out})
	c.until(out.has("is it"), "the server in the sandbox is up: %s", out.String())
	var port int
	fmt.Sscanf(out.String(), "%d", &port)
	return port
}

func dialEcho(c *C) {
	b := c.box()
	port := listenInside(c, b)
	d, _ := driver.As[driver.Dialer](b)
	for i := range 4 {
		conn, err := d.DialPort(c.ctx, port)
		c.ok(err, "DialPort")
		conn.SetDeadline(time.Now().Add(c.waitBound()))
		text := strings.Repeat(fmt.Sprint("connection ", i, " "), 20000)
		go func() {
			io.WriteString(conn, text)
			if h, ok := conn.(interface{ CloseWrite() error }); ok {
				h.CloseWrite()
			}
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			c.Errorf("an echo of %d bytes: %v", len(text), err)
		}
		conn.Close()
	}
	conn, err := d.DialPort(c.ctx, port)
	c.ok(err, "DialPort")
	defer conn.Close()
	c.destroy(b)
	conn.SetDeadline(time.Now().Add(c.waitBound()))
	if n, err := conn.Read(make([]byte, 1)); err == nil || n != 0 {
		c.Errorf("a connection to a destroyed sandbox delivers %d bytes, %v", n, err)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.Errorf("a connection to a destroyed sandbox stays open")
	}
}

// dialHost tests that a port of the host's loopback interface is reached if and only if the network
// is not private.
func dialHost(c *C) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.ok(err, "Listen")
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	err = dial(c, c.box(), l.Addr().(*net.TCPAddr).Port)
	if c.d.Caps().PrivateNetwork {
		c.code(err, "DialPort of a port on the host", sandbar.Unavailable)
	} else if err != nil {
		c.Errorf("no private network is claimed, but a port on the host is not reached: %v", err)
	}
}
