package executor

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

func TestRunTimeout(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	got := r.call("/run", m{"cmd": "print stdout before\nprint stderr too\nblock-until never", "timeout": 1.25})
	if fmt.Sprint(got) != "map[code:-1 error:timed out after 1.25s stderr:too\n stdout:before\n]" {
		t.Errorf("/run: %v", got)
	}
	events := r.stream(r.request(http.MethodPost, "/run_streaming", strings.NewReader(`{"cmd":"print stdout before\nblock-until never","timeout":1.25}`))).all()
	if len(events) != 2 || events[0].data["data"] != "before" || events[1].raw != `{"code":-1,"error":true,"message":"timed out after 1.25s"}` {
		t.Errorf("/run_streaming: %v", events)
	}
}

func TestRunOutputLimit(t *testing.T) {
	d := faulty.New()
	r := newRig(t, d, engine.Config{Default: sandbar.Limits{Output: 1000}}, Options{})
	got := r.run("flood stdout 600\nflood stderr 600\nprint stdout never")
	stdout, stderr := got["stdout"].(string), got["stderr"].(string)
	if len(stdout)+len(stderr) != 1000 || got["truncated"] != true || got["code"] != -1.0 || got["error"] != "output limit exceeded after 1000 bytes; /run_streaming has no limit" {
		t.Errorf("%d and %d bytes, %v %v %v", len(stdout), len(stderr), got["truncated"], got["code"], got["error"])
	}
	// A stream keeps nothing in memory and has no limit.
	n := 0
	for _, e := range r.runStreaming("flood stdout 5000000").all() {
		if e.name == "output" {
			n += len(e.data["data"].(string))
		}
	}
	if n != 5000000 {
		t.Errorf("%d bytes were streamed", n)
	}
}

// TestRunMaxOutput tests that one response is bounded even if the operator's output limit is high
// or absent.
func TestRunMaxOutput(t *testing.T) {
	r := newRig(t, faulty.New(), engine.Config{Default: sandbar.Limits{Output: sandbar.Unlimited}}, Options{MaxOutput: 200_001})
	got := r.run("flood stdout 150000\nflood stderr 150000\nprint stdout never")
	stdout, stderr := got["stdout"].(string), got["stderr"].(string)
	if len(stdout)+len(stderr) != 200_001 || got["truncated"] != true || got["code"] != -1.0 || got["error"] != "output limit exceeded after 200001 bytes; /run_streaming has no limit" {
		t.Errorf("%d and %d bytes, %v %v %v", len(stdout), len(stderr), got["truncated"], got["code"], got["error"])
	}
	// Shorter output is complete, in either encoding, wherever its blocks end.
	for n := bufferSize - 5; n < bufferSize+5; n++ {
		text := strings.Repeat("x", n) + "é€𝄞\xff"
		b, _ := json.Marshal(m{"cmd": "write stdout " + strconv.Quote(text), "encoding": "base64"})
		var coded m
		if err := json.Unmarshal([]byte(r.post("/run", string(b)).body), &coded); err != nil {
			t.Fatal(err)
		}
		if coded["stdout"] != base64.StdEncoding.EncodeToString([]byte(text)) {
			t.Errorf("%d: %.20v came back in base64", n, coded["stdout"])
		}
		if got := r.run("write stdout " + strconv.Quote(text))["stdout"]; got != strings.ToValidUTF8(text, "\uFFFD") {
			t.Errorf("%d: %q came back", n, got)
		}
	}
}

func TestRunOutcomes(t *testing.T) {
	for script, want := range map[string]string{
		"signal 11": `200 {"stdout":"","stderr":"","code":-1,"error":"Non-zero exit code"}`,
		"oom":       `200 {"stdout":"","stderr":"","code":-1,"error":"out of memory"}`,
		"lost":      `500 the sandbox was lost while the program ran; how it ended is not known`,
		"exit 7":    `200 {"stdout":"","stderr":"","code":7,"error":"Non-zero exit code"}`,
	} {
		r, _ := newFaulty(t, Options{})
		a := r.post("/run", `{"cmd":"`+script+`"}`)
		if got := fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
	for script, want := range map[string]string{
		"signal 11": `{"code":-1,"error":true}`,
		"oom":       `{"code":-1,"error":true,"message":"out of memory"}`,
		"lost":      `{"code":-1,"error":true,"message":"the sandbox was lost while the program ran; how it ended is not known"}`,
		"exit 7":    `{"code":7,"error":true}`,
		"exit 0":    `{"code":0,"error":false}`,
	} {
		r, _ := newFaulty(t, Options{})
		events := r.runStreaming(script).all()
		if len(events) != 1 || events[0].name != "complete" || events[0].raw != want {
			t.Errorf("%s: %v, want %s", script, events, want)
		}
	}
	r, _ := newFaulty(t, Options{})
	events := r.runStreaming("fail-wait it is not known").all()
	if len(events) != 1 || events[0].data["code"] != -1.0 || !strings.Contains(fmt.Sprint(events[0].data["message"]), "not known") {
		t.Errorf("an end that cannot be learned: %v", events)
	}
}

// TestRunClientLeaves tests that a command ends when its client leaves.
func TestRunClientLeaves(t *testing.T) {
	for _, path := range []string{"/run", "/run_streaming"} {
		r, d := newFaulty(t, Options{})
		body := `{"cmd":"block-until never"}`
		conn := r.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, secret, len(body), body))
		<-d.Reached("never")
		conn.Close()
		r.await(path+": the program's end", func() bool { return d.Counts().Processes == 0 })
	}
}

// TestRunStreamingBytes compares the stream with the specification, byte by byte.
func TestRunStreamingBytes(t *testing.T) {
	r, d := newFaulty(t, Options{})
	resp := r.do(r.request(http.MethodPost, "/run_streaming", strings.NewReader(`{"cmd":"write stdout \"1\\n\\n2\\r\\n\\\"q\\\"\"\nblock-until b\nwrite stderr \"oh\\n\"\nblock-until c\nwrite stdout \"\\nend\"\nexit 1"}`)))
	defer resp.Body.Close()
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	in := newLineReader(resp.Body)
	expect := func(want string) {
		t.Helper()
		for w := range strings.Lines(want) {
			if got, err := in.line(); got+"\n" != w || err != nil {
				t.Fatalf("%q, %v, want %q", got, err, w)
			}
		}
	}
	const out = "event: output\ndata: {\"stream\":\"stdout\",\"data\":"
	expect(out + "\"1\"}\n\n" + out + "\"\"}\n\n" + out + "\"2\"}\n\n")
	d.Open("b") // "q" still runs, and delays no other
	expect("event: output\ndata: {\"stream\":\"stderr\",\"data\":\"oh\"}\n\n")
	d.Open("c")
	expect(out + "\"\\\"q\\\"\"}\n\n" + out + "\"end\"}\n\nevent: complete\ndata: {\"code\":1,\"error\":true}\n\n")
	if rest, err := in.line(); err != io.EOF {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// TestHeartbeat tests that headers and comments are sent before the program prints.
func TestHeartbeat(t *testing.T) {
	r, d := newFaulty(t, Options{Heartbeat: 10 * time.Millisecond})
	id := r.start("block-until b")
	for gate, s := range map[string]*sseReader{"a": r.runStreaming("block-until a"), "b": r.logs(id, "")} {
		for range 3 {
			if e, ok := s.next(); !ok || e.comment != "heartbeat" || e.name != "" {
				t.Errorf("%s: %+v", gate, e)
			}
		}
		d.Open(gate)
		if all := s.all(); len(all) != 1 || all[0].name != "complete" {
			t.Errorf("%s: %v", gate, all)
		}
	}
}

// TestLongLines tests that a line up to 4 MiB is one event, that a longer one arrives in pieces
// that concatenate to the line, and that no heartbeat is inside a line.
func TestLongLines(t *testing.T) {
	r, _ := newFaulty(t, Options{Heartbeat: time.Millisecond})
	for _, size := range []int{maxLine - 1, maxLine, maxLine + 1, 2*maxLine + 5} {
		events := r.runStreaming(fmt.Sprintf("flood stdout %d\nprint stdout", size)).all()
		var line strings.Builder
		pieces := 0
		for _, e := range events {
			if e.name == "output" {
				pieces++
				line.WriteString(e.data["data"].(string))
				if last := line.Len() == size; (e.data["partial"] == true) == last {
					t.Errorf("%d: piece %d: partial is %v", size, pieces, e.data["partial"])
				}
			}
		}
		if pieces != (size+maxLine-1)/maxLine || line.String() != pattern(size) || events[len(events)-1].name != "complete" {
			t.Errorf("%d: %d bytes in %d pieces", size, line.Len(), pieces)
		}
	}
}

// pattern returns the output of the faulty driver's flood.
func pattern(n int) string {
	return strings.Repeat("abcdefghijklmnopqrstuvwxyz", n/26+1)[:n]
}

// TestStalledClient tests that a client that stops reading blocks its own program, uses bounded
// memory and delays no other; after Options.Stall it is disconnected and its program ended.
func TestStalledClient(t *testing.T) {
	r, d := newFaulty(t, Options{Stall: 2 * time.Second})
	body := `{"cmd":"repeat 100000 flood stdout 100000"}`
	conn := r.raw(fmt.Sprintf("POST /run_streaming HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", secret, len(body), body))
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	r.await("the program's start", func() bool { return d.Written() > 0 })
	for range 20 {
		r.run("print stdout x")
	}
	r.await("the program's end", func() bool { return d.Counts().Processes == 0 })
	if n := d.Written(); n > 100<<20 {
		t.Errorf("the program wrote %d bytes to a client that read none", n)
	}
	// A reader of a log does not block the program either.
	id := r.start("repeat 2000 flood stdout 100000\nprint stdout end")
	conn = r.raw(fmt.Sprintf("GET /process_logs_streaming?id=%s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\n\r\n", id, secret))
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	r.await("the process's end", func() bool { return r.listed(id)["status"] == "completed" })
}

// TestManyStreams tests that concurrent streams are independent.
func TestManyStreams(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	done := make(chan error)
	const clients, lines = 50, 200
	for c := range clients {
		s := r.runStreaming(fmt.Sprintf("repeat %d print stdout client %d", lines, c))
		go func() {
			got := texts(s.all(), "stdout")
			if len(got) != lines || slices.ContainsFunc(got, func(l string) bool { return l != "client "+strconv.Itoa(c) }) {
				done <- fmt.Errorf("client %d: %d lines", c, len(got))
				return
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
