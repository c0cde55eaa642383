package client

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns two ends of a TCP connection over loopback.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// portOf returns a connection in the form in which the agent passes it, and its other end.
func portOf(t *testing.T) (inside net.Conn, program *net.TCPConn) {
	t.Helper()
	a, program := pair(t)
	f, err := a.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	if inside, err = asConn(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	return inside, program
}

// If there are more transfers than large buffers, every byte is moved in both directions, and all
// buffers are released.
func TestPortTransfers(t *testing.T) {
	text := make([]byte, 3<<20+17)
	src := rand.NewChaCha8([32]byte{1})
	src.Read(text)
	var all sync.WaitGroup
	for range cap(largeTransfers) + 8 {
		inside, program := portOf(t)
		outside, client := pair(t)
		for _, way := range []struct{ from, to, in, out *net.TCPConn }{{client, program, outside, nil}, {program, client, nil, outside}} {
			all.Go(func() {
				way.from.Write(text)
				way.from.CloseWrite()
			})
			all.Go(func() {
				var err error
				if way.in != nil {
					_, err = io.Copy(inside, way.in)
					inside.(interface{ CloseWrite() error }).CloseWrite()
				} else {
					_, err = io.Copy(way.out, inside)
					way.out.CloseWrite()
				}
				if err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if got, err := io.ReadAll(way.to); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%d bytes arrive, %v; want all %d", len(got), err, len(text))
				}
			})
		}
	}
	all.Wait()
	if n := len(largeTransfers); n != 0 {
		t.Errorf("%d buffers are not given back", n)
	}
}

// A transfer ends with its connection and delivers the bytes from before.
func TestPortTransferEnds(t *testing.T) {
	inside, program := portOf(t)
	var got bytes.Buffer
	ended := make(chan error)
	go func() {
		_, err := io.Copy(&got, inside)
		ended <- err
	}()
	program.Write([]byte("part"))
	program.Close()
	if err := <-ended; err != nil || got.String() != "part" {
		t.Errorf("got %q, %v", got.String(), err)
	}
}
