package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

func TestSandboxes(t *testing.T) {
	c, id := newDaemon(t, "unix:"+filepath.Join(t.TempDir(), "s"))
	all, err := c.List(within(t))
	if err != nil || len(all) != 1 || string(all[0].ID) != id || all[0].Name != "box" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := c.Stop(within(t), "box"); err != nil {
		t.Error(err)
	}
	if err := c.Stop(within(t), "box"); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a second time: %v", err)
	}
	if _, err := c.Create(within(t), wire.Create{Name: "a/b"}); sandbar.CodeOf(err) != sandbar.Invalid || sandbar.AsError(err).Fix == "" {
		t.Errorf("a bad name: %v", err)
	}
}

func TestExec(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	input := make([]byte, 5<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(input)
	var stdout, stderr bytes.Buffer
	result, err := c.Exec(within(t), id, wire.Exec{Args: []string{"sh", "-c", "cat; printf err >&2; exit 3"}},
		Streams{Stdin: bytes.NewReader(input), Stdout: &stdout, Stderr: &stderr})
	if err != nil || result.ExitCode == nil || *result.ExitCode != 3 || !bytes.Equal(stdout.Bytes(), input) || stderr.String() != "err" {
		t.Errorf("%d bytes, %q, %+v, %v", stdout.Len(), &stderr, result, err)
	}
	if _, err := c.Exec(within(t), id, wire.Exec{Args: []string{"/no/such/program"}}, Streams{Stdout: io.Discard, Stderr: io.Discard}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("no such program: %v", err)
	}
	if _, err := c.Exec(within(t), "nobody", wire.Exec{Args: []string{"true"}}, Streams{}); sandbar.CodeOf(err) != sandbar.NotFound || sandbar.AsError(err).Field != "id" {
		t.Errorf("no such sandbox: %v", err)
	}
	// The program ends before its input does.
	if _, err := c.Exec(within(t), id, wire.Exec{Args: []string{"true"}}, Streams{Stdin: endless{}, Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Error(err)
	}
}

// endless is input without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// watched cancels when it reads a text, or fails.
type watched struct {
	see func()
	err error
}

func (w *watched) Write(p []byte) (int, error) {
	w.see()
	return len(p), w.err
}

func TestExecIsCancelled(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(within(t))
	result, err := c.Exec(ctx, id, wire.Exec{Args: []string{"sh", "-c", "echo up; exec sleep 1000"}}, Streams{Stdin: endless{}, Stdout: &watched{see: cancel}, Stderr: io.Discard})
	if err != nil || result.Outcome != "cancelled" {
		t.Errorf("%+v, %v", result, err)
	}
	full := errors.New("full")
	_, err = c.Exec(within(t), id, wire.Exec{Args: []string{"sh", "-c", "echo up; exec sleep 1000"}}, Streams{Stdout: &watched{func() {}, full}, Stderr: io.Discard})
	if e, ok := errors.AsType[*OutputError](err); !ok || !errors.Is(e, full) {
		t.Errorf("an output that cannot be written: %v", err)
	}
}

func TestFiles(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	body := strings.Repeat("0123456789", 100_000)
	for _, size := range []int64{int64(len(body)), -1} {
		if err := c.Upload(within(t), id, "a/b/f", strings.NewReader(body), size, 0o640, true); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, c, id, "stat -c %a a/b/f; wc -c <a/b/f"); got != "640\n"+strconv.Itoa(len(body))+"\n" {
			t.Errorf("%q", got)
		}
	}
	d, err := c.Download(within(t), id, "a/b/f")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if b, err := io.ReadAll(d); err != nil || string(b) != body || d.Size != int64(len(body)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := c.Upload(within(t), id, "empty", strings.NewReader(""), 0, 0, false); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	for _, size := range []int64{100, -1} {
		err := c.Upload(within(t), id, "half", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), size, 0, false)
		if !errors.Is(err, broken) {
			t.Errorf("a source that breaks: %v", err)
		}
	}
	for name, err := range map[string]error{
		"missing directory": c.Upload(within(t), id, "no/dir/f", strings.NewReader("x"), 1, 0, false),
		"missing file":      second(c.Download(within(t), id, "none")),
	} {
		if sandbar.CodeOf(err) != sandbar.NotFound || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Download(within(t), id, "a"); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("a directory: %v", err)
	}
	if err := c.MakeDir(within(t), id, "x/y"); err != nil {
		t.Error(err)
	}
	if err := c.MakeDir(within(t), id, "empty/y"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a directory below a file: %v", err)
	}
	sh(t, c, id, "mkdir many; cd many; i=0; while [ $i -lt 2100 ]; do : >f$i; i=$((i+1)); done")
	entries, err := c.Dir(within(t), id, "many")
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name] = true
	}
	if err != nil || len(entries) != 2100 || len(names) != 2100 {
		t.Errorf("%d entries, %d names, %v", len(entries), len(names), err)
	}
	if entries, err := c.Dir(within(t), id, "."); err != nil || slices.ContainsFunc(entries, func(e wire.Entry) bool { return e.Name == "half" }) {
		t.Errorf("half a file is there: %+v, %v", entries, err)
	}
}

func TestWatch(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	sh(t, c, id, "mkdir src")
	w, err := c.Watch(within(t), id, "src", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sh(t, c, id, ": >src/new")
	if e, err := w.Next(); err != nil || e != (sandbar.FileEvent{Op: sandbar.FileCreated, Path: "new"}) {
		t.Errorf("%+v, %v", e, err)
	}
	sh(t, c, id, "rm -r src")
	for {
		e, err := w.Next()
		if err == io.EOF {
			break
		}
		if err != nil || e.Op != sandbar.FileRemoved {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if _, err := c.Watch(within(t), id, "none", false); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestProcesses(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	p, err := c.StartProcess(within(t), id, `echo "$A in $PWD"; echo oops >&2; exit 4`, "/tmp", map[string]string{"A": "b"})
	if err != nil || p.ID == "" || p.PID == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	got := map[string]string{}
	collect := func(l Line) error { got[l.Stream] += l.Data + "\n"; return nil }
	if err := c.Logs(within(t), id, p.ID, true, collect); err != nil || got["stdout"] != "b in /tmp\n" || got["stderr"] != "oops\n" {
		t.Errorf("%v, %v", got, err)
	}
	all, err := c.Processes(within(t), id)
	if err != nil || len(all) != 1 || all[0].Status != "failed" || all[0].ExitCode == nil || *all[0].ExitCode != 4 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := c.Kill(within(t), id, p.ID); sandbar.CodeOf(err) != sandbar.Conflict || !strings.Contains(err.Error(), "not running") {
		t.Errorf("to kill one that has ended: %v", err)
	}
	if err := c.Kill(within(t), id, "none"); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("to kill none: %v", err)
	}
	p, err = c.StartProcess(within(t), id, "echo up; exec sleep 1000", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	up := errors.New("up")
	if err := c.Logs(within(t), id, p.ID, true, func(Line) error { return up }); err != up {
		t.Errorf("%v", err)
	}
	clear(got)
	if err := c.Logs(within(t), id, p.ID, false, collect); err != nil || got["stdout"] != "up\n" {
		t.Errorf("what there is of one that runs: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(within(t))
	if err := c.Logs(ctx, id, p.ID, true, func(Line) error { cancel(); return nil }); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if err := c.Kill(within(t), id, p.ID); err != nil {
		t.Error(err)
	}
	if err := c.Logs(within(t), id, "none", true, collect); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("no such process: %v", err)
	}
}

func TestPort(t *testing.T) {
	c, id := newDaemon(t, "127.0.0.1:0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "got %s", b)
	}()
	conn, err := c.Port(within(t), id, l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Error(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "got ping" {
		t.Errorf("%q, %v", b, err)
	}
	if conn, err := c.Port(within(t), id, 0); sandbar.CodeOf(err) != sandbar.Invalid || conn != nil {
		t.Errorf("%v, %v", conn, err)
	}
}

// The errors if there is no daemon, or another server.
func TestNoDaemon(t *testing.T) {
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sandboxes" {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
			return
		}
		io.WriteString(w, "<html>")
	}))
	defer strange.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	for _, tc := range []struct {
		address string
		call    func(*Client) error
		code    sandbar.Code
		says    string
	}{
		{"http://" + dead.Addr().String(), func(c *Client) error { return second(c.List(within(t))) }, sandbar.Unavailable, `start one with "sandbar serve"`},
		{"http://" + dead.Addr().String(), func(c *Client) error { return second(c.Port(within(t), "x", 1)) }, sandbar.Unavailable, `start one with "sandbar serve"`},
		{"unix:/none/s", func(c *Client) error { return second(c.List(within(t))) }, sandbar.Unavailable, `no daemon answers at unix:/none/s`},
		{"https://" + strange.Listener.Addr().String(), func(c *Client) error { return second(c.List(within(t))) }, sandbar.Unavailable, "cannot be reached"},
		{strange.URL, func(c *Client) error { return second(c.List(within(t))) }, sandbar.Unavailable, "302"},
		{strange.URL, func(c *Client) error { return second(c.Processes(within(t), "x")) }, sandbar.Unavailable, "no daemon of this version"},
		{strange.URL, func(c *Client) error { return second(c.Exec(within(t), "x", wire.Exec{}, Streams{})) }, sandbar.Unavailable, "200 (OK)"},
	} {
		c, err := New(tc.address, token)
		if err != nil {
			t.Fatal(err)
		}
		if err := tc.call(c); sandbar.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %s: %v, want %s: %s", tc.address, sandbar.CodeOf(err), err, tc.code, tc.says)
		}
		c.Close()
	}
	if _, err := New("ftp://x", token); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
	c, id := newDaemon(t, "127.0.0.1:0")
	c.token = "wrong"
	if err := c.Stop(within(t), id); sandbar.CodeOf(err) != sandbar.Unauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
	c.token = token
}

// A log continues at the same place after its connection breaks, wherever that is.
func TestLogsResume(t *testing.T) {
	var whole strings.Builder
	for i := range 40 {
		fmt.Fprintf(&whole, ": a comment\n\nid: %d\nevent: log\ndata: {\"stream\":\"stdout\",\"data\":\"line %d\",\"partial\":%v}\n\n", i+1, i, i == 7)
	}
	fmt.Fprint(&whole, "id: 41\nevent: gap\ndata: {\"lost\":5,\"of\":\"stderr\"}\n\nevent: later\ndata: {}\n\nevent: complete\ndata: {\"message\":\"stream ended\"}\n\n")
	text := whole.String()
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		from := 0
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			at := strings.Index(text, "id: "+last+"\n")
			from = at + strings.Index(text[at:], "\n\n") + 2
		}
		if n%5 == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		// Another length each time, so that the connection breaks at every kind of place.
		io.WriteString(w, text[from:min(len(text), from+400+n*7)])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	c, err := New(s.URL, token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	err = c.Logs(within(t), "x", "p", true, func(l Line) error {
		got = append(got, fmt.Sprintf("%s %s %v %d", l.Stream, l.Data, l.Partial, l.Lost))
		return nil
	})
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("stdout line %d %v 0", i, i == 7))
	}
	want = append(want, "stderr  false 5")
	if err != nil || !slices.Equal(got, want) || requests.Load() < 5 {
		t.Errorf("%d requests, %v\n%s", requests.Load(), err, strings.Join(got, "\n"))
	}
}

// Retries of a daemon that does not come back are bounded. A refusal is not retried.
func TestLogsGiveUp(t *testing.T) {
	for status, want := range map[int]int{http.StatusUnauthorized: 1, http.StatusNotFound: 1} {
		var requests atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); w.WriteHeader(status) }))
		c, err := New(s.URL, token)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Logs(within(t), "x", "p", true, func(Line) error { return nil }); err == nil || int(requests.Load()) != want {
			t.Errorf("%d: %d requests, %v", status, requests.Load(), err)
		}
		c.Close()
		s.Close()
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\nevent: log\ndata: {}\n\n: comment\n\ndata: a\ndata: b\n\n"))
	f.Add([]byte("data"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newEvents(bytes.NewReader(b))
		size := 0
		for {
			e, err := s.next()
			if err != nil {
				break
			}
			size += len(e.name) + len(e.id) + len(e.data)
		}
		if size > len(b) {
			t.Errorf("%d bytes of events in %d", size, len(b))
		}
	})
}
