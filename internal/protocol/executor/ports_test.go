package executor

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// proxy starts the port proxy and returns its address.
func (r *rig) proxy() string {
	r.t.Helper()
	l := listenTCP(r.t)
	done := make(chan error, 1)
	go func() { done <- r.server.ServeProxy(l) }()
	r.t.Cleanup(func() {
		r.server.Close()
		if err := <-done; err != nil {
			r.t.Errorf("ServeProxy: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// echoes sends text and expects the same text back.
func echoes(conn net.Conn, text string) error {
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != text {
		return fmt.Errorf("%q came back: %v", b, err)
	}
	return nil
}

func TestBind(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	const bound = `200 {"success":true,"message":"Port binding configured","port":"8080"}`
	const unbound = `200 {"success":true,"message":"Port binding removed"}`
	for _, tt := range []struct{ path, body, want string }{
		{"/unbind_port", ``, unbound},
		{"/bind_port", `{"port":"8080"}`, bound},
		{"/bind_port", `{"port":"9090"}`, `409 {"success":false,"error":"Port already bound","current_port":"8080"}`},
		{"/bind_port", `{"port":"8080"}`, `409 {"success":false,"error":"Port already bound","current_port":"8080"}`},
		{"/unbind_port", `{"port":"1"}`, unbound},
		{"/unbind_port", `{}`, unbound},
		{"/unbind_port", `not json`, unbound},
		{"/bind_port", `{"port":8080}`, "400 Invalid request"},
		{"/bind_port", `{"port":"0"}`, `400 Invalid port: "0" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"65536"}`, `400 Invalid port: "65536" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"-1"}`, `400 Invalid port: "-1" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"+80"}`, `400 Invalid port: "+80" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"80 "}`, `400 Invalid port: "80 " (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"8_0"}`, `400 Invalid port: "8_0" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"http"}`, `400 Invalid port: "http" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":"999999999999999999999"}`, `400 Invalid port: "999999999999999999999" (a number from 1 to 65535)`},
		{"/bind_port", `{"port":""}`, "400 Port is required"},
		{"/bind_port", `{"port":"65535"}`, `200 {"success":true,"message":"Port binding configured","port":"65535"}`},
	} {
		a := r.post(tt.path, tt.body)
		if got := fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
	if port, ok := r.server.Bound(); port != 65535 || !ok {
		t.Errorf("Bound: %d, %v", port, ok)
	}
}

func TestProxy(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	addr := r.proxy()
	if b, err := io.ReadAll(dial(t, addr)); err != nil || len(b) != 0 {
		t.Errorf("nothing bound: %q, %v", b, err)
	}
	r.start("serve 80\nserve 90\nblock-until never")
	r.await("the port", func() bool {
		c, err := r.sandbox.DialPort(t.Context(), 90)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	r.post("/bind_port", `{"port":"80"}`)
	first := dial(t, addr)
	if err := echoes(first, "hello"); err != nil {
		t.Error(err)
	}
	// A newly bound port applies to new connections.
	r.post("/unbind_port", "")
	if b, err := io.ReadAll(dial(t, addr)); err != nil || len(b) != 0 {
		t.Errorf("unbound: %q, %v", b, err)
	}
	r.post("/bind_port", `{"port":"81"}`)
	if b, err := io.ReadAll(dial(t, addr)); err != nil || len(b) != 0 {
		t.Errorf("where nothing listens: %q, %v", b, err)
	}
	r.post("/unbind_port", "")
	r.post("/bind_port", `{"port":"90"}`)
	if err := echoes(dial(t, addr), "new"); err != nil {
		t.Error(err)
	}
	if err := echoes(first, "still there"); err != nil {
		t.Error(err)
	}
	r.server.Close()
	if n, err := io.Copy(io.Discard, first); n != 0 {
		t.Errorf("after Close: %d bytes, %v", n, err)
	}
}

func TestProxyIsBounded(t *testing.T) {
	r, _ := newFaulty(t, Options{MaxProxied: 3})
	addr := r.proxy()
	r.start("serve 80\nblock-until never")
	r.post("/bind_port", `{"port":"80"}`)
	var conns []*net.TCPConn
	r.await("the port", func() bool {
		conn := dial(t, addr)
		if echoes(conn, "x") != nil {
			return false
		}
		conns = append(conns, conn)
		return len(conns) == 3
	})
	conn := dial(t, addr)
	if n, _ := conn.Read(make([]byte, 1)); n != 0 {
		t.Error("one too many is served")
	}
	conns[0].Close()
	r.await("room for another", func() bool { return echoes(dial(t, addr), "x") == nil })
}

func TestServeProxyFails(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	l := listenTCP(t)
	l.Close()
	if err := r.server.ServeProxy(l); err == nil {
		t.Error("a closed listener is no error")
	}
}
