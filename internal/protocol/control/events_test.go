package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// reader is a reader of events.
type reader struct {
	t    *testing.T
	in   *bufio.Scanner
	last string // the id of the last event or position
	stop func()
}

// events opens a reader.
func (r *rig) events(t *testing.T, query, last string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	q, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr+"/v1/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	stop := func() { cancel(); resp.Body.Close() }
	t.Cleanup(stop)
	x := &reader{t: t, in: bufio.NewScanner(resp.Body), stop: stop}
	if _, name := x.block(); name != "" || x.last == "" {
		t.Fatalf("the stream begins with %q", name)
	}
	return x
}

// block reads to the next empty line. name is "" for a position.
func (x *reader) block() (n wire.Notification, name string) {
	x.t.Helper()
	for x.in.Scan() {
		field, value, _ := strings.Cut(x.in.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			x.last = value
		case "data":
			if err := json.Unmarshal([]byte(value), &n); err != nil {
				x.t.Fatal(err)
			}
		case "":
			if value == "" && x.in.Text() == "" {
				return n, name
			}
		}
	}
	x.t.Fatalf("the stream has ended: %v", x.in.Err())
	return n, ""
}

// next returns the next event.
func (x *reader) next() wire.Notification {
	x.t.Helper()
	for {
		if n, name := x.block(); name != "" {
			if name != n.Type || x.last != n.ID {
				x.t.Errorf("event %s, id %s: %+v", name, x.last, n)
			}
			return n
		}
	}
}

func TestEvents(t *testing.T) {
	r := newRig(t, Options{}, nil)
	all := r.events(t, "", "")
	s := r.create(`{"name":"a"}`)
	if n := all.next(); n.Type != "sandbox.created" || n.Sandbox != s.ID || n.Time.IsZero() {
		t.Errorf("%+v", n)
	}
	r.create(`{"name":"b"}`)
	if status, _ := r.ask(hastyToken, "POST", "/v1/sandboxes", `{}`); status != 201 {
		t.Fatal(status)
	}
	if status, _ := r.ask(hastyToken, "POST", "/v1/sandboxes", `{}`); status != 429 {
		t.Fatal(status)
	}
	sandbox, err := r.engine.Get(context.Background(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.Exec(t.Context(), sandbar.Cmd{Args: []string{"exit", "3"}}, nil, sandbar.Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	if status, _ := r.ask(token, "DELETE", "/v1/sandboxes/a", ""); status != 204 {
		t.Fatal(status)
	}
	var got []string
	for range 6 {
		n := all.next()
		code := "-"
		if n.ExitCode != nil {
			code = fmt.Sprint(*n.ExitCode)
		}
		got = append(got, strings.Join([]string{n.Type, n.Client, n.Reason, n.Program, n.Outcome, code, n.Action, string(n.Code)}, ","))
	}
	want := []string{"sandbox.created,,,,,-,,", "sandbox.created,hasty,,,,-,,", "refused,hasty,,,,-,sandbox.create,exhausted",
		"program.started,,,x1,,-,,", "program.ended,,,x1,exited,3,,", "sandbox.ended,,stopped,,,-,,"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// TestEventFilters tests the filters by sandbox, also by the name, and by type.
func TestEventFilters(t *testing.T) {
	r := newRig(t, Options{}, nil)
	a, b := r.create(`{"name":"a"}`), r.create(`{"name":"b"}`)
	for query, want := range map[string][]string{
		"after=oldest&sandbox=" + string(a.ID):           {"sandbox.created a", "sandbox.ended a"},
		"after=oldest&sandbox=" + a.UUID:                 {"sandbox.created a", "sandbox.ended a"},
		"after=oldest&sandbox=b&type=sandbox.ended":      {"sandbox.ended b"},
		"after=oldest&type=sandbox.created&type=refused": {"sandbox.created a", "sandbox.created b"},
		"after=oldest&type=sandbox&sandbox=b":            {"sandbox.created b", "sandbox.ended b"},
		"type=sandbox":                                   {"sandbox.ended a", "sandbox.ended b"},
	} {
		x := r.events(t, query, "")
		defer func() {
			for i, w := range want {
				n := x.next()
				got := n.Type + " " + map[sandbar.ID]string{a.ID: "a", b.ID: "b"}[n.Sandbox]
				if got != w {
					t.Errorf("%s: event %d is %s, want %s", query, i, got, w)
				}
			}
		}()
	}
	for _, key := range []string{"a", "b"} {
		if status, _ := r.ask(token, "DELETE", "/v1/sandboxes/"+key, ""); status != 204 {
			t.Fatal(status)
		}
	}
}

// TestEventsReconnect tests that a reader that continues after the last id, which can be that of a
// position, gets each event once.
func TestEventsReconnect(t *testing.T) {
	r := newRig(t, Options{KeepAlive: 20 * time.Millisecond}, nil)
	last, seen := "", []sandbar.ID{}
	var want []sandbar.ID
	first := r.events(t, "type=sandbox.created", "")
	last = first.last
	first.stop()
	for range 5 {
		want = append(want, r.create(`{}`).ID, r.create(`{}`).ID)
		x := r.events(t, "type=sandbox.created", last)
		for range 2 {
			seen = append(seen, x.next().Sandbox)
		}
		if _, name := x.block(); name != "" { // a keep-alive, with the position
			t.Errorf("an event %s", name)
		}
		last = x.last
		x.stop()
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", seen, want)
	}
	// The query of the first request is repeated; the header replaces its after.
	x := r.events(t, "after=oldest", last)
	id := r.create(`{}`).ID
	if n := x.next(); n.Sandbox != id {
		t.Errorf("%+v", n)
	}
}

// TestEventsOfAnotherDaemon tests that an id of an earlier daemon is a gap and not an error.
func TestEventsOfAnotherDaemon(t *testing.T) {
	other := newRig(t, Options{}, nil)
	last := other.events(t, "", "").last
	r := newRig(t, Options{}, nil)
	id := r.create(`{}`).ID
	x := r.events(t, "", last)
	if n := x.next(); n.Type != "gap" || n.Missed != nil {
		t.Errorf("%+v", n)
	}
	if n := x.next(); n.Type != "sandbox.created" || n.Sandbox != id {
		t.Errorf("%+v", n)
	}
}

// TestSlowReader tests that a reader that does not read blocks nothing, and gets a gap.
func TestSlowReader(t *testing.T) {
	r := newRig(t, Options{}, nil)
	x := r.events(t, "", "")
	const rounds = 100_000 // more than the buffers of a connection and the kept events
	for range rounds {
		r.engine.Admit(sandbar.Job{})
	}
	var before, missed int64
	for missed == 0 {
		n := x.next()
		switch {
		case n.Type == "gap":
			missed = *n.Missed
		case before == rounds:
			t.Fatal("there was no gap")
		default:
			before++
		}
	}
	var after int64
	for before+missed+after < rounds {
		if n := x.next(); n.Type != "refused" {
			missed += *n.Missed // a second one: the engine was faster than the connection again
		} else {
			after++
		}
	}
	id := r.create(`{}`).ID
	if n := x.next(); n.Sandbox != id {
		t.Errorf("%d events, then %d missed, then %d events; then %+v", before, missed, after, n)
	}
}

func TestBadEventRequests(t *testing.T) {
	r := newRig(t, Options{MaxEventReaders: 2}, nil)
	id := string(r.create(`{"secret":"` + secret + `"}`).ID)
	for query, want := range map[string]string{
		"x=1": "x", "after=": "after", "after=x": "after", "after=a-b": "after", "after=oldest&after=oldest": "after",
		"type=sandbox.born": "type", "type=": "type", "type=sand": "type", "sandbox=nobody": "sandbox", strings.Repeat("type=gap&", 65): "type",
	} {
		status, text := r.ask(token, "GET", "/v1/events?"+query, "")
		if e := errorOf(t, text); status != 400 && status != 404 || e.Field != want || e.Fix == "" {
			t.Errorf("%.40s: %d %s", query, status, text)
		}
	}
	for _, bearer := range []string{secret, ""} {
		if status, text := r.ask(bearer, "GET", "/v1/events?sandbox="+id, ""); status != 401 {
			t.Errorf("%d %s", status, text)
		}
	}
	one, two := r.events(t, "", ""), r.events(t, "", "")
	status, text, h := r.askAll(token, "GET", "/v1/events", "")
	if e := errorOf(t, text); status != 503 || e.Code != sandbar.Exhausted || h.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, text)
	}
	one.stop()
	await(t, "a reader has left", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.readers == 1
	})
	r.events(t, "", "").stop()
	two.stop()
}

// TestEventsEndAtShutdown tests that readers do not delay a shutdown.
func TestEventsEndAtShutdown(t *testing.T) {
	r := newRig(t, Options{}, nil)
	x := r.events(t, "", "")
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for x.in.Scan() {
		if strings.HasPrefix(x.in.Text(), "event") {
			t.Errorf("%s", x.in.Text())
		}
	}
	if x.in.Err() == nil {
		t.Error("the stream has a regular end, after which clients do not connect again")
	}
}
