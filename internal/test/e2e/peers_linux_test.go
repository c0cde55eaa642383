package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// peers starts daemons that know each other, and waits until all answer.
func peers(t *testing.T, n int, env ...string) []*daemon {
	t.Helper()
	dirs := make([]string, n)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	return peersIn(t, dirs, env...)
}

// peersIn is peers with a daemon in each of the directories.
func peersIn(t *testing.T, dirs []string, env ...string) []*daemon {
	t.Helper()
	var addresses, urls []string
	for range dirs {
		addresses = append(addresses, testenv.FreeAddress(t))
		urls = append(urls, "http://"+addresses[len(addresses)-1])
	}
	var all []*daemon
	for i, a := range addresses {
		all = append(all, startDaemonAt(t, a, nil, dirs[i], append(env, "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off", "SANDBAR_PEERS_ADDRESSES="+strings.Join(urls, ","))...))
	}
	for _, d := range all {
		d.await(t)
	}
	return all
}

// status sends a request with the daemon's token and returns the status and the body of the answer.
func (d *daemon) status(t *testing.T, method, path string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, time.Minute), method, "http://"+d.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Three daemons behind a load balancer answer as one: each serves the sandboxes of all.
func TestPeers(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Python)
	all := peers(t, 3, "SANDBAR_E2B=true")
	a, b, c := all[0], all[1], all[2]
	var box, other struct{ ID string }
	a.must(t, "POST", "/v1/sandboxes", object{"name": "shared"}, &box)
	b.must(t, "POST", "/v1/sandboxes", object{}, &other)

	if got := b.shell(t, box.ID, "echo from $(whoami) >f; cat f"); got != "from user\n" {
		t.Errorf("a command through another daemon: %q", got)
	}
	if got := c.cli(t, "exec", "shared", "--", "cat", "f"); got != "from user\n" {
		t.Errorf("by name and WebSocket: %q", got)
	}
	content := make([]byte, 20<<20)
	rand.Read(content)
	c.put(t, box.ID, "big", content)
	local := filepath.Join(t.TempDir(), "big")
	b.cli(t, "download", box.ID, "big", local)
	if got, err := os.ReadFile(local); err != nil || !slices.Equal(got, content) {
		t.Errorf("a file through two other daemons has %d bytes, %v", len(got), err)
	}

	// a preview, whose host name says which sandbox it is
	a.must(t, "POST", "/sandboxes/"+box.ID+"/executor/start_process", object{"cmd": "python3 -m http.server 8000"}, nil)
	waitUntil(t, "the preview answers", func() []string {
		r, err := http.NewRequestWithContext(within(t, time.Minute), "GET", "http://"+c.addr+"/f", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "8000-" + strings.TrimPrefix(box.ID, "sb_") + ".localhost"
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return []string{err.Error()}
		}
		defer resp.Body.Close()
		if page, _ := io.ReadAll(resp.Body); string(page) != "from user\n" {
			return []string{resp.Status, string(page)}
		}
		return nil
	})

	// lists have the sandboxes of all, also by pages
	want := slices.Sorted(slices.Values([]string{box.ID, other.ID}))
	for _, d := range all {
		if got := slices.Sorted(maps.Keys(d.sandboxes(t))); !slices.Equal(got, want) {
			t.Errorf("the list is %v, want %v", got, want)
		}
	}
	var page struct {
		Sandboxes []struct{ ID string }
		Next      string
	}
	c.must(t, "GET", "/v1/sandboxes?limit=1", nil, &page)
	if len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != box.ID {
		t.Errorf("the first page: %+v", page)
	}
	c.must(t, "GET", "/v1/sandboxes?limit=1&after="+page.Next, nil, &page)
	if len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != other.ID {
		t.Errorf("the second page: %+v", page)
	}

	testPeersOfE2B(t, a, b, c)

	// what nobody has, and what the owner refuses
	if code, text := c.status(t, "GET", "/v1/sandboxes/sb_AAAAAAAAAAAAAAAA"); code != http.StatusNotFound {
		t.Errorf("a sandbox that nobody has: %d %s", code, text)
	}
	if code, text := c.status(t, "GET", "/v1/sandboxes/"+box.ID, "Authorization", "Bearer wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d %s", code, text)
	}
	if code, text := c.status(t, "DELETE", "/v1/sandboxes/"+other.ID); code != http.StatusNoContent {
		t.Errorf("stopping the sandbox of another daemon: %d %s", code, text)
	}
	if code, text := b.status(t, "GET", "/v1/sandboxes/"+other.ID); code != http.StatusNotFound {
		t.Errorf("it is still there: %d %s", code, text)
	}

	// the end of a daemon is that of its sandboxes
	a.kill()
	waitUntil(t, "the sandbox of the killed daemon is unknown", func() []string {
		if code, text := b.status(t, "GET", "/v1/sandboxes/"+box.ID); code != http.StatusNotFound {
			return []string{text}
		}
		return nil
	})
	if got := b.sandboxes(t); len(got) != 0 {
		t.Errorf("the list of those that remain: %v", got)
	}
	b.endClean(t)
	c.endClean(t)
}

// testPeersOfE2B does the same by the E2B protocol.
func testPeersOfE2B(t *testing.T, a, b, c *daemon) {
	t.Helper()
	key := []string{"Authorization", "", "X-Api-Key", token}
	r, err := http.NewRequestWithContext(within(t, time.Minute), "POST", "http://"+a.addr+"/sandboxes", strings.NewReader(`{"templateID":"base","allow_internet_access":false}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ SandboxID string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.SandboxID == "" {
		t.Fatalf("%s %v", resp.Status, err)
	}
	if code, text := b.status(t, "GET", "/sandboxes/"+made.SandboxID, key...); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		var list []struct{ SandboxID string }
		_, text := c.status(t, "GET", path, key...)
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 || list[0].SandboxID != made.SandboxID {
			t.Errorf("GET %s: %s", path, text)
		}
	}
	if code, text := b.status(t, "GET", "/health", "E2b-Sandbox-Id", made.SandboxID, "E2b-Sandbox-Port", "49983", "Authorization", ""); code != http.StatusNoContent {
		t.Errorf("envd through another daemon: %d %s", code, text)
	}
	if code, text := c.status(t, "DELETE", "/sandboxes/"+made.SandboxID, key...); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
}

// Of simultaneous requests to several daemons never more are admitted than the quotas of a tenant
// allow together, and all of them can be used. If a daemon does not answer, a request fails; if one
// has ended, the others have the whole quota.
func TestQuotasOverPeers(t *testing.T) {
	testenv.Need(t, testenv.UserNS)
	const most = 4
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	owner := newToken(t, dirs[0], "--tenant", "a", "--role", "user", "a-user")
	tokens, err := os.ReadFile(filepath.Join(dirs[0], "state", "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs[1:] {
		if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "state", "tokens.json"), tokens, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := peersIn(t, dirs, "SANDBAR_TENANTS=[{name: a, max_sandboxes: 4}]")
	create := func(d *daemon) (int, string) {
		status, _, text := d.as(t, owner, "POST", "/v1/sandboxes", "{}")
		return status, text
	}
	usage := func(d *daemon, token, query string) (n int) {
		var u struct{ Sandboxes, Deciding int }
		_, _, text := d.as(t, token, "GET", "/v1/usage"+query, "")
		if err := json.Unmarshal([]byte(text), &u); err != nil || u.Deciding != 0 {
			t.Errorf("the usage is %s, %v", text, err)
		}
		return u.Sandboxes
	}
	var made atomic.Int32
	var work sync.WaitGroup
	for i := range 18 {
		work.Go(func() {
			switch status, text := create(all[i%3]); status {
			case http.StatusCreated:
				made.Add(1)
			case http.StatusTooManyRequests:
			default:
				t.Error(status, text)
			}
		})
	}
	work.Wait()
	if made.Load() > most {
		t.Errorf("%d sandboxes", made.Load())
	}
	for n := int(made.Load()); n < most; n++ {
		if status, text := create(all[n%3]); status != http.StatusCreated {
			t.Error(status, text)
		}
	}
	for _, d := range all {
		if status, text := create(d); status != http.StatusTooManyRequests || !strings.Contains(text, "in use 4, allowed 4") {
			t.Errorf("beyond the quota: %d %s", status, text)
		}
		if a, b := usage(d, owner, ""), usage(d, token, "?tenant=a"); a != most || b != most {
			t.Errorf("the usage is %d and %d", a, b)
		}
	}
	// One of them stands still: what it has is not known.
	if err := all[2].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "all its threads stand still", func() (running []string) {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", all[2].cmd.Process.Pid))
		for _, path := range stats {
			if b, _ := os.ReadFile(path); !bytes.Contains(b, []byte(") T ")) {
				running = append(running, path)
			}
		}
		return running
	})
	unknown := 0
	for _, d := range all[:2] {
		switch status, text := create(d); {
		case status == http.StatusServiceUnavailable && strings.Contains(text, "does not answer"):
			unknown++
		case status != http.StatusTooManyRequests: // which a daemon knows alone that has the whole quota
			t.Errorf("without an answer of one daemon: %d %s", status, text)
		}
	}
	if unknown == 0 {
		t.Error("two daemons know what the third has")
	}
	all[2].kill()
	waitUntil(t, "the others have the whole quota", func() []string {
		if status, text := create(all[0]); status != http.StatusCreated {
			if usage(all[1], owner, "") == most {
				return nil
			}
			return []string{text}
		}
		return []string{"it is not used up"}
	})
	all[0].endClean(t)
	all[1].endClean(t)
}
