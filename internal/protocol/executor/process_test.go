package executor

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestProcesses(t *testing.T) {
	r, d := newFaulty(t, Options{})
	if a := r.get("/list_processes"); a.body != "{\"processes\":[]}\n" {
		t.Errorf("none: %q", a.body)
	}
	a := r.post("/start_process", `{"cmd":"block-until a"}`)
	var started struct{ ID, Status string }
	if err := json.Unmarshal([]byte(a.body), &started); err != nil || a.status != 201 || !uuid4.MatchString(started.ID) || started.Status != "running" {
		t.Fatalf("%d %q", a.status, a.body)
	}
	waits, fails, dies, crashes := started.ID, r.start("exit 3"), r.start("signal 9"), r.start("oom")
	done := r.start("exit 0")
	r.await("the ends", func() bool {
		for _, id := range []string{fails, dies, crashes, done} {
			if r.listed(id)["status"] == "running" {
				return false
			}
		}
		return true
	})
	for id, want := range map[string]string{waits: "running <nil>", fails: "failed 3", dies: "killed -1", crashes: "killed -1", done: "completed 0"} {
		p := r.listed(id)
		if got := fmt.Sprintf("%v %v", p["status"], p["exit_code"]); got != want {
			t.Errorf("%v: %s, want %s", p["command"], got, want)
		}
		keys := slices.Sorted(maps.Keys(p))
		want := []string{"command", "completed_at", "exit_code", "id", "pid", "started_at", "status"}
		if id == waits {
			want = []string{"command", "id", "pid", "started_at", "status"}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("%v has %v", p["command"], keys)
		}
		for _, key := range []string{"started_at", "completed_at"} {
			if text, ok := p[key].(string); ok {
				if at, err := time.Parse(time.RFC3339Nano, text); err != nil || time.Since(at) > time.Hour || time.Since(at) < -time.Hour {
					t.Errorf("%s: %v %v", key, text, err)
				}
			}
		}
	}
	var all struct{ Processes []struct{ Command string } }
	json.Unmarshal([]byte(r.get("/list_processes").body), &all)
	if fmt.Sprint(all.Processes) != "[{block-until a} {exit 3} {signal 9} {oom} {exit 0}]" {
		t.Errorf("the order: %v", all.Processes)
	}

	if got := r.call("/kill_process", m{"id": waits}); fmt.Sprint(got) != "map[message:Process killed successfully success:true]" {
		t.Errorf("kill: %v", got)
	}
	if p := r.listed(waits); p["status"] != "killed" || p["exit_code"] != -1.0 {
		t.Errorf("killed: %v", p)
	}
	for id, state := range map[string]string{waits: "killed", fails: "failed", done: "completed"} {
		a := r.post("/kill_process", `{"id":"`+id+`"}`)
		if a.status != 400 || a.body != `{"success":false,"error":"process is not running (status: `+state+`)"}`+"\n" {
			t.Errorf("kill of a %s one: %d %q", state, a.status, a.body)
		}
	}
	if n := d.Counts().Processes; n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestKeepFinished tests that the last finished processes are kept, and all running ones.
func TestKeepFinished(t *testing.T) {
	r, _ := newFaulty(t, Options{KeepFinished: 2})
	runs := r.start("block-until never")
	var ids []string
	for range 5 {
		id := r.start("print stdout x")
		ids = append(ids, id)
		r.await("the end", func() bool { p := r.listed(id); return p == nil || p["status"] != "running" })
	}
	r.await("the oldest being forgotten", func() bool { return r.listed(ids[2]) == nil })
	if r.listed(ids[3]) == nil || r.listed(ids[4]) == nil || r.listed(runs) == nil {
		t.Error("a process within KeepFinished is forgotten")
	}
	events := r.logs(ids[0], "").all()
	if len(events) != 1 || events[0].name != "error" || events[0].data["error"] != "process not found: "+ids[0] {
		t.Errorf("the log of a forgotten process: %v", events)
	}
	none, _ := newFaulty(t, Options{KeepFinished: -1})
	id := none.start("exit 0")
	none.await("it being forgotten", func() bool { return none.listed(id) == nil })
}

func TestLogsOfNobody(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	a := r.get("/process_logs_streaming?id=z%22z")
	if a.status != 200 || a.body != "event: error\ndata: {\"error\":\"process not found: z\\\"z\"}\n\n" || a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %q", a.status, a.body)
	}
	long := strings.Repeat("x", 10000)
	if a := r.get("/process_logs_streaming?id=" + long); len(a.body) > 1000 {
		t.Errorf("an id of %d bytes is answered with %d", len(long), len(a.body))
	}
}

var logForm = regexp.MustCompile(`^\{"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z","stream":"(stdout|stderr)","data":"[a-z]*"\}$`)

// TestLogs tests that a log sends stored lines, then new ones, then the end; and continues after
// any event.
func TestLogs(t *testing.T) {
	r, d := newFaulty(t, Options{})
	id := r.start("print stdout a\nblock-until 1\nprint stderr b\nblock-until 2\nprint stdout c\nblock-until 3\nwrite stdout d")
	s := r.logs(id, "")
	var all []sse
	for i := range 3 {
		e := s.event()
		if e.name != "log" || !logForm.MatchString(e.raw) {
			t.Errorf("%+v", e)
		}
		all = append(all, e)
		d.Open(fmt.Sprint(i + 1))
	}
	all = append(all, s.all()...)
	if len(all) != 5 || fmt.Sprint(texts(all, "stdout"), texts(all, "stderr")) != "[a c d] [b]" || all[4].raw != `{"message":"stream ended"}` || all[4].name != "complete" {
		t.Errorf("live: %v", all)
	}
	for from := range 5 {
		last := ""
		if from > 0 {
			last = all[from-1].id
		}
		again := r.logs(id, last).all()
		if len(again) != 5-from {
			t.Errorf("after %q: %d events", last, len(again))
		}
		for i := range again {
			if again[i].raw != all[from+i].raw || again[i].id != all[from+i].id {
				t.Errorf("after %q: event %d is %v", last, i, again[i])
			}
		}
	}
	for _, last := range []string{"x", "1", "4-0", "0-2", "-1-0", "3-1x"} {
		q := r.request(http.MethodGet, "/process_logs_streaming?id="+id, nil)
		q.Header.Set("Last-Event-ID", last)
		if a := r.send(q); a.status != 400 {
			t.Errorf("Last-Event-ID %q: %d", last, a.status)
		}
	}
}

// TestLogGap tests that dropped lines are reported once.
func TestLogGap(t *testing.T) {
	r, _ := newFaulty(t, Options{KeepLines: 10})
	id := r.start("repeat 100 print stdout x\nprint stderr y")
	r.await("the end", func() bool { return r.listed(id)["status"] == "completed" })
	events := r.logs(id, "").all()
	if len(events) != 13 || events[0].name != "gap" || events[0].raw != `{"lost":90,"of":"stdout"}` || len(texts(events, "stdout")) != 10 || len(texts(events, "stderr")) != 1 {
		t.Errorf("%v", events)
	}
	// A reader that got the gap does not get it again.
	if again := r.logs(id, events[0].id).all(); len(again) != 12 || again[0].name != "log" {
		t.Errorf("after the gap: %v", again)
	}
}

// TestLogsOfALostSandbox tests that the log of a process ends with its sandbox.
func TestLogsOfALostSandbox(t *testing.T) {
	r, d := newFaulty(t, Options{})
	id := r.start("print stdout a\nblock-until never")
	s := r.logs(id, "")
	s.event()
	d.DieAll()
	if all := s.all(); len(all) != 1 || all[0].name != "complete" {
		t.Errorf("%v", all)
	}
	if p := r.listed(id); p["status"] != "killed" {
		t.Errorf("%v", p)
	}
}

// TestManySubscribers tests a hundred readers, some of them slow and some leaving: all get every
// line once.
func TestManySubscribers(t *testing.T) {
	r, d := newFaulty(t, Options{})
	const lines = 1500
	id := r.start(fmt.Sprintf("repeat %d print stdout line\nblock-until mid\nrepeat %d print stderr line", lines, lines))
	done := make(chan error)
	const clients = 100
	for c := range clients {
		s := r.logs(id, "")
		go func() {
			if c%10 == 0 { // leaves and reconnects
				last := ""
				for range 2 * c {
					last = s.event().id
				}
				s.resp.Body.Close()
				if c > 0 {
					s = r.logs(id, last)
				} else {
					s = r.logs(id, "")
				}
				all := s.all()
				if n := len(all) - 1; n != 2*lines-2*c {
					done <- fmt.Errorf("client %d: %d lines after it came back", c, n)
					return
				}
				done <- nil
				return
			}
			all := s.all()
			if a, b := len(texts(all, "stdout")), len(texts(all, "stderr")); a != lines || b != lines || all[len(all)-1].name != "complete" {
				done <- fmt.Errorf("client %d: %d and %d lines of %d", c, a, b, lines)
				return
			}
			done <- nil
		}()
	}
	d.Open("mid")
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A request in progress at the end of the server is answered: it says why it ended.
func TestAnswerAtClose(t *testing.T) {
	r, d := newFaulty(t, Options{})
	q := r.request(http.MethodPost, "/run", strings.NewReader(`{"cmd": "block-until never"}`))
	got := make(chan answer)
	go func() {
		defer close(got)
		resp, err := r.client.Do(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		got <- answer{resp.StatusCode, resp.Header, string(b)}
	}()
	<-d.Reached("never")
	r.server.Close()
	if a := <-got; a.status < 500 || a.body == "" {
		t.Errorf("%+v", a)
	}
}
