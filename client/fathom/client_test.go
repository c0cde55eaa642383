package fathom_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/client/fathom"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	server "github.com/sandbar-dev/sandbar/internal/protocol/fathom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds failing tests. No test depends on a duration.
const patience = 30 * time.Second

// serve serves the protocol over the faulty driver, at "/ws", and returns its address.
func serve(t testing.TB, o server.Options) (string, *faulty.Driver) {
	t.Helper()
	d := faulty.New()
	e, err := engine.New(engine.Config{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(e, o)
	mux := http.NewServeMux()
	mux.Handle(wire.Path, s)
	listener := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(e.Shutdown(ctx), d.Leaks()); err != nil {
			t.Error(err)
		}
		listener.Close()
	})
	return listener.URL, d
}

func dial(t testing.TB, o fathom.Options) *fathom.Client {
	t.Helper()
	if o.Backoff == 0 {
		o.Backoff = time.Millisecond
	}
	c, err := fathom.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// codeOf returns the code of an error, "" for none.
func codeOf(err error) wire.Code {
	if e, ok := errors.AsType[*fathom.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestExecute(t *testing.T) {
	url, _ := serve(t, server.Options{})
	c := dial(t, fathom.Options{URL: url})
	var kinds []string
	r, err := c.Execute(within(t), fathom.Request{Language: "python", Code: "env A\nprint stderr oops\ncount-stdin\nexit 3", Env: map[string]string{"A": "b"}, Stdin: "four"}, func(m fathom.Message) error {
		kinds = append(kinds, m.Type)
		return nil
	})
	if err != nil || r.Status != wire.Failed || r.ExitCode == nil || *r.ExitCode != 3 || r.Stdout != "A=b\n4\n" || r.Stderr != "oops\n" || !r.Acknowledged {
		t.Errorf("%+v, %v", r, err)
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "ack status std") || !strings.HasSuffix(got, "status result") {
		t.Errorf("messages %s", got)
	}
	for _, tt := range []struct {
		code   string
		status wire.Status
		err    wire.Code
	}{
		{"exit 0", wire.Completed, ""}, {"signal 9", wire.Failed, ""}, {"oom", wire.OOM, ""}, {"sleep 1h", wire.TimedOut, ""},
		{"flood stdout 5000", wire.Failed, wire.CodeOutputLimit}, {"lost", wire.Running, wire.CodeInternalError},
	} {
		r, err := c.Execute(within(t), fathom.Request{Language: "python", Code: tt.code, Timeout: 200 * time.Millisecond, MaxOutput: 1000}, nil)
		if r.Status != tt.status || codeOf(err) != tt.err || tt.err == wire.CodeOutputLimit && len(r.Stdout) != 1000 {
			t.Errorf("%s: %+v, %v", tt.code, r, err)
		}
	}
	// An execution is active until its sandbox is removed, which may be later than its result.
	for ctx := within(t); ; time.Sleep(time.Millisecond) {
		load, err := c.Ping(ctx)
		if err != nil {
			t.Fatalf("%+v, %v", load, err)
		}
		if load.Active == 0 {
			break
		}
	}
}

func TestRefusals(t *testing.T) {
	url, d := serve(t, server.Options{})
	c := dial(t, fathom.Options{URL: url})
	many := map[string]string{} // the server's refusal has no id
	for i := range 70_000 {
		many[fmt.Sprint("A", i)] = ""
	}
	for name, tt := range map[string]struct {
		r    fathom.Request
		want wire.Code
	}{
		"language": {fathom.Request{Language: "cobol"}, wire.CodeLanguageNotSupported},
		"memory":   {fathom.Request{Language: "python", MemoryMB: 1 << 20}, wire.CodeInvalidRequest},
		"id":       {fathom.Request{Language: "python", ID: strings.Repeat("x", 257)}, wire.CodeInvalidRequest},
		"text":     {fathom.Request{Language: "python", Code: "\xff"}, wire.CodeInvalidRequest},
		"size":     {fathom.Request{Language: "python", Code: strings.Repeat("x", 50<<20)}, wire.CodeInvalidRequest},
		"members":  {fathom.Request{Language: "python", Env: many}, wire.CodeInvalidRequest},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		r, err := c.Execute(ctx, tt.r, nil)
		cancel()
		if e, ok := errors.AsType[*fathom.Error](err); !ok || e.Code != tt.want || e.Retryable || e.Message == "" || r.Acknowledged {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Execute(within(t), fathom.Request{ID: "same", Language: "python", Code: "block-until go"}, nil)
		done <- err
	}()
	<-d.Reached("go")
	if _, err := c.Execute(within(t), fathom.Request{ID: "same", Language: "python"}, nil); codeOf(err) != wire.CodeInvalidRequest {
		t.Errorf("an id that is pending: %v", err)
	}
	d.Open("go")
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "box:80", "ftp://box", "http://"} {
		if _, err := fathom.New(fathom.Options{URL: bad}); codeOf(err) != wire.CodeInvalidRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The end of the context cancels the program, and so does an error of the receiver. The result has
// what had arrived.
func TestCancel(t *testing.T) {
	url, _ := serve(t, server.Options{})
	c := dial(t, fathom.Options{URL: url})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	r, err := c.Execute(ctx, fathom.Request{Language: "python", Code: "print stdout up\nsleep 1h"}, func(m fathom.Message) error {
		if m.Type == wire.Stdout {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || r.Status != wire.Cancelled || r.Stdout != "up\n" {
		t.Errorf("%+v, %v", r, err)
	}
	full := errors.New("full")
	r, err = c.Execute(within(t), fathom.Request{Language: "python", Code: "print stdout up\nsleep 1h"}, func(m fathom.Message) error {
		if m.Type == wire.Stdout {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || r.Status != wire.Cancelled {
		t.Errorf("%+v, %v", r, err)
	}
}

// Executions are concurrent. A receiver that blocks delays only its own, and further executions
// wait for one of MaxPending places.
func TestConcurrent(t *testing.T) {
	url, _ := serve(t, server.Options{})
	c := dial(t, fathom.Options{URL: url, MaxPending: 8})
	blocked := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		r, err := c.Execute(within(t), fathom.Request{Language: "python", Code: "repeat 2000 print stdout hello"}, func(m fathom.Message) error {
			<-blocked
			return nil
		})
		if err != nil || r.Stdout != strings.Repeat("hello\n", 2000) {
			t.Errorf("%d bytes, %v", len(r.Stdout), err)
		}
	})
	var others sync.WaitGroup
	for i := range 40 {
		others.Go(func() {
			want := fmt.Sprintf("n%d\n", i)
			if r, err := c.Execute(within(t), fathom.Request{Language: "python", Code: "print stdout n" + fmt.Sprint(i)}, nil); err != nil || r.Stdout != want {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	others.Wait()
	close(blocked)
	work.Wait()
}

// cutter is a proxy that cuts its first connections after a number of bytes of the server.
type cutter struct {
	net.Listener
	after []int64 // of each connection; later ones are not cut
	count atomic.Int64
}

func newCutter(t *testing.T, to string, after ...int64) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: ln, after: after}
	var conns sync.WaitGroup
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			outside, err := ln.Accept()
			if err != nil {
				return
			}
			n := int(c.count.Add(1)) - 1
			inside, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				outside.Close()
				continue
			}
			conns.Go(func() { io.Copy(inside, outside); inside.Close() })
			conns.Go(func() {
				if n < len(c.after) {
					io.CopyN(outside, inside, c.after[n])
				} else {
					io.Copy(outside, inside)
				}
				outside.Close()
				inside.Close()
			})
		}
	})
	return c
}

// Wherever the connection is cut, a pending execution fails with a retryable error, and what comes
// after it runs on a new connection. With Retries the same execution succeeds.
func TestCuts(t *testing.T) {
	url, _ := serve(t, server.Options{DisconnectGrace: -1})
	request := fathom.Request{Language: "python", Code: "print stdout one\nprint stderr two\nprint stdout three"}
	// The answer to the upgrade has about 200 bytes, and the messages about 700.
	for cut := int64(0); cut < 1100; cut += 25 {
		cut := newCutter(t, url, cut)
		c := dial(t, fathom.Options{URL: "http://" + cut.Addr().String()})
		r, err := c.Execute(within(t), request, nil)
		switch e, ok := errors.AsType[*fathom.Error](err); {
		case err == nil && r.Stdout == "one\nthree\n" && r.Stderr == "two\n":
		case ok && e.Code == wire.CodeNetworkError && e.Retryable && strings.HasPrefix("one\nthree\n", r.Stdout):
		default:
			t.Errorf("cut after %d bytes: %+v, %v", cut.after[0], r, err)
		}
		if r, err := c.Execute(within(t), request, nil); err != nil && codeOf(err) != wire.CodeNetworkError {
			t.Errorf("cut after %d bytes, then: %+v, %v", cut.after[0], r, err)
		}
		retried := request
		retried.Retries = 2 // the cut may be after the last message
		if r, err := c.Execute(within(t), retried, nil); err != nil || r.Stdout != "one\nthree\n" {
			t.Errorf("cut after %d bytes, at last: %+v, %v", cut.after[0], r, err)
		}
		c.Close()
	}
	again := newCutter(t, url, 100, 300, 500, 700)
	c := dial(t, fathom.Options{URL: "http://" + again.Addr().String()})
	request.Retries = 4
	if r, err := c.Execute(within(t), request, nil); err != nil || r.Stdout != "one\nthree\n" || r.Stderr != "two\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if n := again.count.Load(); n < 4 {
		t.Errorf("%d connections", n)
	}
}

// A server that cannot be reached is retried until GiveUp; the call then fails with a retryable
// error. A request that waits for the connection is sent when the server is there.
func TestServerAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	c := dial(t, fathom.Options{URL: "http://" + addr, GiveUp: 50 * time.Millisecond})
	_, err = c.Execute(within(t), fathom.Request{Language: "python"}, nil)
	if e, ok := errors.AsType[*fathom.Error](err); !ok || e.Code != wire.CodeNetworkError || !e.Retryable {
		t.Errorf("%v", err)
	}
	url, _ := serve(t, server.Options{})
	away := newCutter(t, url, 0, 0, 0, 0, 0) // it ends five attempts
	late := dial(t, fathom.Options{URL: "http://" + away.Addr().String()})
	if r, err := late.Execute(within(t), fathom.Request{Language: "python"}, nil); err != nil || away.count.Load() != 6 {
		t.Errorf("%+v, %v after %d connections", r, err, away.count.Load())
	}
	late.Close()
}

// What the server refuses for good is an error at once, with the server's reason.
func TestRefusedConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"token": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the token is wrong", http.StatusUnauthorized)
		}, "401 Unauthorized: the token is wrong"},
		"version": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "version 2 only", 400) }, "version 2 only"},
		"redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:1/", http.StatusFound)
		}, "302 Found"},
		"header": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(wire.VersionHeader, "2")
			if ws, err := websocket.Accept(w, r, nil); err == nil {
				ws.Read(r.Context())
			}
		}, `the server speaks version "2"`},
	} {
		listener := httptest.NewServer(tt.handler)
		c := dial(t, fathom.Options{URL: listener.URL, Token: "x"})
		for range 2 {
			_, err := c.Execute(within(t), fathom.Request{Language: "python"}, nil)
			if e, ok := errors.AsType[*fathom.Error](err); !ok || e.Retryable || !strings.Contains(e.Message, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		c.Close()
		listener.Close()
	}
}

// hostile serves one connection by hand: it reads an execute and calls answer.
func hostile(t *testing.T, answer func(ws *websocket.Conn, id string)) string {
	t.Helper()
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		if _, _, err := ws.Read(r.Context()); err != nil {
			return
		}
		answer(ws, "x")
		for {
			if _, _, err := ws.Read(r.Context()); err != nil {
				return
			}
		}
	}))
	t.Cleanup(listener.Close)
	return listener.URL
}

// A server that sends nonsense ends the connection, and one that sends too much is not stored.
func TestHostileServer(t *testing.T) {
	say := func(ws *websocket.Conn, text string) {
		ws.Write(context.Background(), websocket.MessageText, []byte(text))
	}
	for name, answer := range map[string]func(ws *websocket.Conn, id string){
		"no JSON":       func(ws *websocket.Conn, _ string) { say(ws, "{") },
		"other version": func(ws *websocket.Conn, _ string) { say(ws, `{"v":2,"type":"ack","id":"x"}`) },
		"no version":    func(ws *websocket.Conn, _ string) { say(ws, `{"type":"ack","id":"x"}`) },
		"binary": func(ws *websocket.Conn, _ string) {
			ws.Write(context.Background(), websocket.MessageBinary, []byte(`{"v":1}`))
		},
		"too large": func(ws *websocket.Conn, _ string) {
			say(ws, `{"v":1,"type":"stdout","id":"x","data":"`+strings.Repeat("x", 100_000)+`"}`)
		},
		"wrong type": func(ws *websocket.Conn, _ string) { say(ws, `{"v":1,"type":7}`) },
	} {
		c := dial(t, fathom.Options{URL: hostile(t, answer), MaxMessage: 50_000})
		if _, err := c.Execute(within(t), fathom.Request{ID: "x", Language: "python"}, nil); codeOf(err) != wire.CodeNetworkError {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
	flood := dial(t, fathom.Options{CancelWait: 10 * time.Millisecond, URL: hostile(t, func(ws *websocket.Conn, _ string) {
		for range 200 {
			say(ws, `{"v":1,"type":"later","id":"x"}`)
			say(ws, `{"v":1,"type":"stdout","id":"other","data":"y"}`)
			say(ws, `{"v":1,"type":"stdout","id":"x","data":"`+strings.Repeat("x", 1000)+`"}`)
		}
	})})
	r, err := flood.Execute(within(t), fathom.Request{ID: "x", Language: "python", MaxOutput: 5000}, nil)
	if codeOf(err) != wire.CodeOutputLimit || len(r.Stdout) != 5000 {
		t.Errorf("%d bytes, %v", len(r.Stdout), err)
	}
}

// A connection that does not answer pings is lost.
func TestSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url, d := serve(t, server.Options{})
	var stalled atomic.Bool
	var conns sync.WaitGroup
	defer conns.Wait()
	conns.Go(func() {
		for {
			outside, err := silent.Accept()
			if err != nil {
				return
			}
			inside, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				outside.Close()
				return
			}
			conns.Go(func() { io.Copy(inside, outside); inside.Close(); outside.Close() })
			conns.Go(func() {
				buf := make([]byte, 4096)
				for {
					n, err := inside.Read(buf)
					if err != nil {
						outside.Close()
						return
					}
					if !stalled.Load() { // else it is dropped, as by a network that is gone
						outside.Write(buf[:n])
					}
				}
			})
		}
	})
	c := dial(t, fathom.Options{URL: "http://" + silent.Addr().String(), PingInterval: 50 * time.Millisecond})
	go func() {
		<-d.Reached("never")
		stalled.Store(true)
	}()
	if _, err := c.Execute(within(t), fathom.Request{Language: "python", Code: "block-until never"}, nil); codeOf(err) != wire.CodeNetworkError {
		t.Error(err)
	}
	silent.Close()
	c.Close()
}

// Close ends what is pending, and later calls.
func TestClose(t *testing.T) {
	url, d := serve(t, server.Options{DisconnectGrace: -1})
	c := dial(t, fathom.Options{URL: url})
	done := make(chan error, 1)
	go func() {
		_, err := c.Execute(within(t), fathom.Request{Language: "python", Code: "block-until never", Retries: 3}, nil)
		done <- err
	}()
	<-d.Reached("never")
	c.Close()
	if err := <-done; codeOf(err) != wire.CodeNetworkError {
		t.Error(err)
	}
	if _, err := c.Execute(within(t), fathom.Request{Language: "python"}, nil); codeOf(err) != wire.CodeNetworkError {
		t.Error(err)
	}
	if _, err := c.Ping(within(t)); codeOf(err) != wire.CodeNetworkError {
		t.Error(err)
	}
}

func ExampleClient_Execute() {
	d := faulty.New() // its Python prints what "print stdout" says
	e, err := engine.New(engine.Config{Driver: d})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := server.New(e, server.Options{})
	listener := httptest.NewServer(s)
	defer listener.Close()
	defer e.Shutdown(context.Background())
	defer s.Close()

	c, err := fathom.New(fathom.Options{URL: listener.URL, Token: "the daemon's token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.Execute(context.Background(), fathom.Request{Language: "python", Code: "print stdout 42"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(r.Status, " ", *r.ExitCode, " ", r.Stdout)
	// Output: completed 0 42
}
