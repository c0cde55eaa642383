package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/fathom"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// apiOf returns a client of a daemon with a token.
func apiOf(t *testing.T, d *daemon, token string) *client.Client {
	t.Helper()
	c, err := client.New("http://"+d.addr, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// signal is a writer that closes a channel at the first write.
type signal chan struct{}

func (s signal) Write(p []byte) (int, error) {
	select {
	case <-s:
	default:
		close(s)
	}
	return len(p), nil
}

// When a token is revoked, its requests are refused and its open connections end: the stream of
// events, a watch of files, a terminal, a connection to a port, and an execution of Fathom. Those
// of another token of the tenant go on, and so do the sandbox and its background programs.
func TestTenantsRevocation(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	first, second := newToken(t, dir, "--tenant", "a", "first"), newToken(t, dir, "--tenant", "a", "second")
	d := nativeDaemon(t, dir)
	ctx := within(t, 2*time.Minute)
	gone, other := apiOf(t, d, first), apiOf(t, d, second)
	box, err := gone.Create(ctx, wire.Create{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(box.ID)
	const reachable = `python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))'`
	if _, err := gone.Run(ctx, id, client.Command{Cmd: "nohup python3 -m http.server 8000 >log 2>&1 & until " + reachable + " 2>/dev/null; do sleep 0.1; done"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 10)
	open := 0
	begin := func(name string, began <-chan struct{}, call func() error) {
		open++
		go func() {
			if err := call(); err == nil && name != "fathom" {
				t.Errorf("%s ended without an error", name)
			}
			ended <- name
		}()
		select {
		case <-began:
		case <-ctx.Done():
			t.Fatalf("%s has not begun; the daemon said:\n%s", name, d.said())
		}
	}
	terminal := func(c *client.Client, began signal) error {
		r, err := c.Exec(ctx, id, wire.Exec{Args: []string{"sh", "-c", "echo begun; sleep 1000"}, Terminal: &wire.TerminalSize{Rows: 24, Cols: 80}}, client.Streams{Stdout: began})
		if err == nil && r.Outcome != "exited" {
			return io.ErrUnexpectedEOF // cancelled
		}
		return err
	}
	began := make(signal)
	begin("terminal", began, func() error { return terminal(gone, began) })
	stream := func(path string) (<-chan struct{}, func() error) {
		began := make(signal)
		return began, func() error {
			q, err := http.NewRequestWithContext(ctx, "GET", "http://"+d.addr+path, nil)
			if err != nil {
				return err
			}
			q.Header.Set("Authorization", "Bearer "+first)
			resp, err := http.DefaultTransport.RoundTrip(q)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s", path, resp.Status)
			}
			began.Write(nil)
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
	}
	for name, path := range map[string]string{"events": "/v1/events", "watch": "/v1/sandboxes/" + id + "/watch?path=."} {
		began, call := stream(path)
		begin(name, began, call)
	}
	connected := make(signal)
	begin("port", connected, func() error {
		conn, err := gone.Port(ctx, id, 8000)
		if err != nil {
			return err
		}
		defer conn.Close()
		connected.Write(nil)
		if n, _ := conn.Read(make([]byte, 1)); n > 0 {
			t.Error("the server has written without a request")
		}
		return io.EOF
	})
	f, err := fathom.New(fathom.Options{URL: "http://" + d.addr, Token: first, GiveUp: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	executing := make(signal)
	begin("fathom", executing, func() error {
		_, err := f.Execute(ctx, fathom.Request{Language: "python", Code: "import time; print(1, flush=True); time.sleep(1000)", Timeout: 5 * time.Minute}, func(fathom.Message) error {
			executing.Write(nil)
			return nil
		})
		return err
	})
	stays := make(signal)
	still, leave := context.WithCancel(ctx)
	defer leave()
	go other.Exec(still, id, wire.Exec{Args: []string{"sh", "-c", "echo begun; sleep 1000"}}, client.Streams{Stdout: stays})
	<-stays

	tokenCommand(t, dir, "revoke", "first")
	var names []string
	for range open {
		select {
		case name := <-ended:
			names = append(names, name)
		case <-ctx.Done():
			t.Fatalf("only %v have ended; the daemon said:\n%s", names, d.said())
		}
	}
	if _, err := gone.List(ctx); sandbar.CodeOf(err) != sandbar.Unauthenticated {
		t.Error("a revoked token is accepted:", err)
	}
	if b, err := other.Get(ctx, id); err != nil || b.Running < 1 {
		t.Errorf("the sandbox: %+v, %v", b, err)
	}
	if r, err := other.Run(ctx, id, client.Command{Cmd: reachable}); err != nil || r.ExitCode != 0 {
		t.Errorf("the background program: %+v, %v", r, err)
	}
	leave()
	if err := other.Stop(ctx, id); err != nil {
		t.Error(err)
	}
	d.endClean(t)
}

// Tenants, their tokens, their paused sandboxes and their quotas outlast the daemon, and the audit
// log names tenant and token. A damaged file of tokens refuses them, and the operator goes on.
func TestTenantsRestart(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Freezer)
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	ours, theirs := newToken(t, dir, "--tenant", "a", "ours"), newToken(t, dir, "--tenant", "b", "theirs")
	start := func() *daemon {
		return nativeDaemon(t, dir, "SANDBAR_AUDIT_FILE="+log, "SANDBAR_TENANTS=[{name: a, max_sandboxes: 1}]")
	}
	ctx := within(t, 2*time.Minute)
	d := start()
	a := apiOf(t, d, ours)
	box, err := a.Create(ctx, wire.Create{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(box.ID)
	if _, err := a.Create(ctx, wire.Create{}); sandbar.CodeOf(err) != sandbar.Exhausted || !strings.Contains(err.Error(), "in use 1, allowed 1") {
		t.Error("beyond the quota:", err)
	}
	if err := a.Upload(ctx, id, "f", strings.NewReader("kept"), 4, 0o644, false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	d.endClean(t)
	d = start()
	a, b := apiOf(t, d, ours), apiOf(t, d, theirs)
	if all, err := b.List(ctx); err != nil || len(all) > 0 {
		t.Errorf("another tenant sees %v, %v", all, err)
	}
	for _, call := range []func() error{
		func() error { _, err := b.Get(ctx, id); return err },
		func() error { _, err := b.Resume(ctx, id); return err },
		func() error { return b.Stop(ctx, id) },
	} {
		if err := call(); sandbar.CodeOf(err) != sandbar.NotFound {
			t.Error("another tenant:", err)
		}
	}
	if _, err := a.Resume(ctx, id); err != nil {
		t.Fatal(err)
	}
	file, err := a.Download(ctx, id, "f")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); string(text) != "kept" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	file.Close()
	if err := os.WriteFile(filepath.Join(dir, "state", "tokens.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.List(ctx); sandbar.CodeOf(err) != sandbar.Unavailable || !strings.Contains(err.Error(), "tokens.json") {
		t.Error("with a damaged file:", err)
	}
	if all, err := apiOf(t, d, token).List(ctx); err != nil || len(all) != 1 || all[0].Tenant != "a" {
		t.Errorf("the operator sees %v, %v", all, err)
	}
	d.endClean(t)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var r struct{ Tenant, Client, Action, Outcome string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Tenant+" "+r.Client+" "+r.Action+" "+r.Outcome)
	}
	for _, want := range []string{"a ours sandbox.create ok", "a ours sandbox.create exhausted", "a ours sandbox.pause ok", "b theirs sandbox.stop not_found", "a ours sandbox.resume ok"} {
		if !slices.Contains(got, want) {
			t.Errorf("the audit log lacks %q: %q", want, got)
		}
	}
}

// A preview is opened by its own token, and by the tokens of its tenant that may change something.
// To another tenant it looks like one of no sandbox.
func TestTenantsPreviews(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	a, b := tokensOf(t, dir, "a"), tokensOf(t, dir, "b")
	d := nativeDaemon(t, dir)
	ctx := within(t, 2*time.Minute)
	owner := apiOf(t, d, a["user"])
	box, err := owner.Create(ctx, wire.Create{})
	if err != nil {
		t.Fatal(err)
	}
	const reachable = `python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))'`
	if _, err := owner.Run(ctx, string(box.ID), client.Command{Cmd: "nohup python3 -m http.server 8000 >log 2>&1 & until " + reachable + " 2>/dev/null; do sleep 0.1; done"}); err != nil {
		t.Fatal(err)
	}
	preview, err := owner.Preview(ctx, string(box.ID), 8000, false)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(preview.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(token, host, query string) int {
		q, err := http.NewRequestWithContext(ctx, "GET", "http://"+d.addr+"/?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = host
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	missing := "8000-" + strings.TrimPrefix(string(sandbar.NewID()), "sb_") + ".localhost"
	for _, tc := range []struct {
		who, token, host, query string
		want                    int
	}{
		{"a user", a["user"], u.Host, "", 200}, {"an admin", a["admin"], u.Host, "", 200}, {"the operator", token, u.Host, "", 200},
		{"a reader", a["read-only"], u.Host, "", 401}, {"nobody", "", u.Host, "", 401},
		{"another tenant", b["admin"], u.Host, "", 401}, {"another tenant of no sandbox", b["admin"], missing, "", 401},
		{"the URL", "", u.Host, u.RawQuery, 303}, {"the URL by another tenant", b["user"], u.Host, u.RawQuery, 303},
	} {
		if got := ask(tc.token, tc.host, tc.query); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.who, got, tc.want)
		}
	}
	if err := owner.Stop(ctx, string(box.ID)); err != nil {
		t.Error(err)
	}
	d.endClean(t)
}
