package fathom

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// flood is a script that writes many bytes; much is its output limit.
const (
	flooded = 8 << 20
	flood   = "flood stdout 8388608"
	much    = `"max_output_bytes":67108864`
)

var limitsMuch = []string{`"timeout_ms":300000,"memory_mb":256`, much}

// held bounds the bytes that wait for a client that does not read: queued messages, the server's
// message in progress, and the program's own pipe.
const held = (runFrames + 2 + 3) * maxData

// checkPattern reads the output of one execution that floods stdout, up to the given total. It
// skips other messages.
func checkPattern(t *testing.T, c *client, id string, total int64) {
	t.Helper()
	pattern := make([]byte, maxData+26)
	for i := range pattern {
		pattern[i] = faulty.Pattern(int64(i))
	}
	for at := int64(0); at < total; {
		m := c.receive()
		if m.ID != id || m.Type != wire.Stdout {
			continue
		}
		if len(m.Data) == 0 || len(m.Data) > maxData {
			t.Fatalf("a message has %d bytes of output", len(m.Data))
		}
		if phase := at % 26; m.Data != string(pattern[phase:phase+int64(len(m.Data))]) {
			t.Fatalf("the output from byte %d is wrong: %.60q…", at, m.Data)
		}
		if at += int64(len(m.Data)); at > total {
			t.Fatalf("received %d bytes, want %d", at, total)
		}
	}
}

// TestSlowReader tests back-pressure: a client that does not read blocks its own program, memory is
// bounded, and no byte is lost.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		slow, other := r.connect(), r.connect()
		slow.execute("e1", flood, limitsMuch...)
		synctest.Wait() // until nothing can move
		if got := r.driver.Written(); got > held {
			t.Errorf("the program has written %d bytes, want at most %d", got, held)
		}
		other.execute("e1", "print stdout hello")
		other.expect("e1 ack", "e1 status running", "e1 stdout hello\n", "e1 status completed", "e1 result 0")
		checkPattern(t, slow, "e1", flooded)
		slow.expect("e1 status completed", "e1 result 0")
	})
}

// TestSlowReaderTCP is TestSlowReader with the buffers of a real network.
func TestSlowReaderTCP(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	slow, other := r.connect(), r.connect()
	slow.execute("e1", "flood stdout 67108864", limitsMuch...)
	r.await("the client's window fills up", func() bool { return r.stalled(50 * time.Millisecond) })
	if got := r.driver.Written(); got > 48<<20 {
		t.Errorf("the program has written %d bytes of %d", got, 64<<20)
	}
	other.execute("e1", "print stdout hello")
	other.expect("e1 ack", "e1 status running", "e1 stdout hello\n", "e1 status completed", "e1 result 0")
	checkPattern(t, slow, "e1", 64<<20)
	slow.expect("e1 status completed", "e1 result 0")
}

// stalled reports whether a write on any connection has taken longer than d.
func (r *rig) stalled(d time.Duration) bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for c := range r.server.conns {
		if c.out.stalled(d) {
			return true
		}
	}
	return false
}

// TestManySlowExecutions tests that the bound is per connection, not per execution.
func TestManySlowExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		slow := r.connect()
		for i := range 20 {
			slow.execute(fmt.Sprint("e", i), flood, limitsMuch...)
		}
		synctest.Wait()
		// Each program has its own pipe, and one chunk in the engine.
		if got, most := r.driver.Written(), int64(held+20*4*maxData); got > most {
			t.Errorf("the programs have written %d bytes, want at most %d", got, most)
		}
	})
}

// TestStuckClientStillCancels tests that a client that reads no output can still cancel, and that
// time limits still apply.
func TestStuckClientStillCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", flood, limitsMuch...)
		c.execute("e2", flood, `"timeout_ms":1000,"memory_mb":256`, much)
		synctest.Wait()
		c.cancel("e1")
		synctest.Wait()
		if n := r.driver.Counts().Processes; n != 1 {
			t.Errorf("%d programs after the cancel, want 1", n)
		}
		time.Sleep(2 * time.Second)
		if n := r.driver.Counts().Processes; n != 0 {
			t.Errorf("%d programs after the timeout, want 0", n)
		}
		last := map[string]string{}
		for len(last) < 2 {
			if m := c.receive(); m.Type == wire.StatusType && m.Status != wire.Running {
				last[m.ID] = m.brief()
			}
		}
		if last["e1"] != "e1 status cancelled" || last["e2"] != "e2 status timeout" {
			t.Errorf("the ends are %v", last)
		}
	})
}

// TestUnreadAnswers tests that the server soon stops reading from a client that does not read, and
// later answers every request.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		const pings = 1000
		sent := make(chan int, pings+1)
		go func() {
			for i := range pings {
				if c.ws.Write(context.Background(), websocket.MessageText, []byte(`{"v":1,"type":"ping"}`)) != nil {
					break
				}
				sent <- i
			}
		}()
		synctest.Wait()
		// All free frames, the two in progress, and the server's read buffer.
		if got, most := len(sent), replyFrames+2+(4<<10)/20; got > most {
			t.Errorf("%d requests were taken, want at most %d", got, most)
		}
		for range pings {
			c.expect(" pong")
		}
	})
}

// TestWriteTimeout tests that a client that does not read loses its connection, and that its
// executions end after the grace period.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", flood+"\nblock-until never", limitsMuch...)
		time.Sleep(29 * time.Second)
		if n := r.connections(); n != 1 {
			t.Fatalf("%d connections before the timeout", n)
		}
		time.Sleep(2 * time.Second)
		if n := r.driver.Counts().Processes; n != 1 {
			t.Errorf("%d programs within the grace", n)
		}
		time.Sleep(5 * time.Second)
		if n := r.driver.Counts().Processes; n != 0 {
			t.Errorf("%d programs after the grace", n)
		}
		if n := r.connections(); n != 0 {
			t.Errorf("%d connections after the timeout", n)
		}
		if got := c.closed(); got != -1 {
			t.Errorf("closed with %v, want no close frame: it could not have been sent", got)
		}
	})
}

func (r *rig) connections() int {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return len(r.server.conns)
}

// TestSlowIsNotStuck tests that a client that reads a little at a time keeps its connection,
// although the whole takes longer than the timeout and pings of both sides are lost.
func TestSlowIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", "flood stdout 262144", limitsMuch...)
		c.expect("e1 ack", "e1 status running")
		for at := int64(0); at < 256<<10; {
			time.Sleep(20 * time.Second)
			m := c.receive()
			if m.Type != wire.Stdout {
				t.Fatalf("received %q", m.brief())
			}
			at += int64(len(m.Data))
		}
		c.expect("e1 status completed", "e1 result 0")
	})
}

// TestFairness tests that a flood of one program does not delay another program of the connection.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("loud", flood, limitsMuch...)
		c.execute("soft", "repeat 10 print stdout hello")
		const most = 100 // of the 256 messages of the flood
		loud := 0
		for {
			m := c.receive()
			if m.ID == "loud" {
				loud++
			}
			if m.ID == "soft" && m.Type == wire.ResultType {
				break
			}
		}
		if loud > most {
			t.Errorf("%d messages before the end of the other program, want at most %d", loud, most)
		}
	})
}

// TestDisconnect tests that the executions of a lost connection continue for the grace period, with
// their output discarded, and are then cancelled.
func TestDisconnect(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"in order": func(c *client) { c.ws.Close(websocket.StatusNormalClosure, "") },
		"vanished": func(c *client) { c.ws.CloseNow() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubble(t, engine.Config{}, Options{})
				c := r.connect()
				c.execute("short", "block-until left\n"+flood+"\nsleep 4s", limitsMuch...)
				c.execute("long", "ignore-term\nblock-until never")
				synctest.Wait() // no message is read: the connection breaks during blocked writes
				leave(c)
				r.driver.Open("left")
				time.Sleep(4900 * time.Millisecond)
				if got := r.driver.Events(); slices.Contains(got, "signal 15") {
					t.Errorf("cancelled within the grace: %v", got)
				}
				if n := r.driver.Counts().Processes; n != 1 {
					t.Errorf("%d programs run within the grace, want the long one", n)
				}
				if got := r.driver.Written(); got != flooded {
					t.Errorf("%d bytes were discarded, want all", got)
				}
				time.Sleep(200 * time.Millisecond)
				if got := r.driver.Events(); !slices.Contains(got, "signal 15") {
					t.Errorf("not cancelled after the grace: %v", got)
				}
				time.Sleep(time.Second)
				if n := r.driver.Counts().Sandboxes + r.connections(); n != 0 {
					t.Errorf("%d sandboxes and connections are left", n)
				}
			})
		})
	}
}

// TestDisconnectWithoutGrace tests that without a grace period, running and queued executions are
// cancelled at once.
func TestDisconnectWithoutGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{MaxSandboxes: 1}, Options{DisconnectGrace: -1})
		c := r.connect()
		c.execute("e1", "block-until never")
		c.execute("e2", "block-until never")
		c.expect("e1 ack")
		synctest.Wait()
		c.ws.CloseNow()
		time.Sleep(time.Second)
		if s := r.engine.Stats(); s.Active != 0 || s.Queued != 0 {
			t.Errorf("the load is %+v", s)
		}
		if n := r.driver.Counts().Created; n != 1 {
			t.Errorf("%d sandboxes were made, want 1", n)
		}
	})
}

// TestShutdown tests that running executions finish and report, connections close with 1001, and
// new requests are refused.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{MaxSandboxes: 1}, Options{})
		idle, busy := r.connect(), r.connect()
		busy.execute("e1", "sleep 2s\nprint stdout done")
		busy.expect("e1 ack", "e1 status running")
		busy.execute("e2", "print stdout queued") // queued, and so also counted
		busy.expect("e2 ack")

		down := make(chan error)
		go func() { down <- r.server.Shutdown(timeout(t, time.Minute)) }()
		if got := idle.closed(); got != websocket.StatusGoingAway {
			t.Errorf("the idle connection closed with %v, want 1001", got)
		}
		synctest.Wait() // connections close one after the other
		busy.execute("e3", "print stdout too late")
		busy.ping()
		busy.expect("e3 error NETWORK_ERROR", " pong")
		if _, resp, err := websocket.Dial(t.Context(), r.url, &websocket.DialOptions{HTTPClient: r.client}); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a new connection: %v %v", resp, err)
		}
		got, want := map[string][]string{}, map[string][]string{
			"e1": {"e1 stdout done\n", "e1 status completed", "e1 result 0"},
			"e2": {"e2 status running", "e2 stdout queued\n", "e2 status completed", "e2 result 0"},
		}
		for range len(want["e1"]) + len(want["e2"]) { // e2 may begin before the result of e1 is sent
			m := busy.receive()
			got[m.ID] = append(got[m.ID], m.brief())
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the messages are %q, want %q", got, want)
		}
		if got := busy.closed(); got != websocket.StatusGoingAway {
			t.Errorf("the busy connection closed with %v, want 1001", got)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown returned %v", err)
		}
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestShutdownDeadline tests that executions that outlast the deadline are cancelled and reported,
// but not as cancelled by the client.
func TestShutdownDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{MaxSandboxes: 2}, Options{})
		c := r.connect()
		c.execute("e1", "block-until never")
		c.execute("e2", "ignore-term\nblock-until never")
		c.execute("e3", "print stdout queued")
		began := time.Now()
		down := make(chan error)
		go func() { down <- r.server.Shutdown(timeout(t, 10*time.Second)) }()
		last := map[string]string{}
		for len(last) < 3 {
			if m := c.receive(); m.Type == wire.ErrorType || m.Type == wire.ResultType {
				last[m.ID] = m.brief()
			}
		}
		for id, got := range last {
			if got != id+" error NETWORK_ERROR" {
				t.Errorf("the last message is %q", got)
			}
		}
		if got := c.closed(); got != websocket.StatusGoingAway {
			t.Errorf("closed with %v, want 1001", got)
		}
		if err := <-down; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v", err)
		}
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
	})
}

// TestShutdownStuckClient tests that a client that does not read delays the shutdown by at most
// closeWait beyond the deadline.
func TestShutdownStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		r.connect().execute("e1", flood, limitsMuch...)
		r.connect() // idle, and does not answer the close frame
		synctest.Wait()
		began := time.Now()
		if err := r.server.Shutdown(timeout(t, 10*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v", err)
		}
		if d := time.Since(began); d > 10*time.Second+2*closeWait {
			t.Errorf("Shutdown took %v", d)
		}
		if n := r.driver.Counts().Processes + r.connections(); n != 0 {
			t.Errorf("%d programs and connections are left", n)
		}
	})
}

// TestShutdownAfterDisconnect tests that the shutdown waits for the grace period of a lost client's
// executions.
func TestShutdownAfterDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", "block-until never")
		c.expect("e1 ack", "e1 status running")
		c.ws.CloseNow()
		synctest.Wait()
		if err := r.server.Shutdown(timeout(t, time.Minute)); err != nil {
			t.Errorf("Shutdown returned %v", err)
		}
		if n := r.driver.Counts().Processes; n != 0 {
			t.Errorf("%d programs are left", n)
		}
	})
}

// TestClose tests that Close ends everything at once, also during a Shutdown.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", "ignore-term\nblock-until never")
		c.expect("e1 ack", "e1 status running")
		down := make(chan error)
		go func() { down <- r.server.Shutdown(timeout(t, time.Hour)) }()
		synctest.Wait()
		began := time.Now()
		r.server.Close()
		<-down
		if n := r.driver.Counts().Processes + r.connections(); n != 0 {
			t.Errorf("%d programs and connections are left", n)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// TestEngineShutdown tests that the engine's shutdown under a connection is not reported as
// cancelled by the client.
func TestEngineShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{MaxSandboxes: 1}, Options{})
		c := r.connect()
		c.execute("e1", "block-until never")
		c.expect("e1 ack", "e1 status running")
		c.execute("e2", "print stdout queued")
		c.expect("e2 ack")
		down := make(chan error)
		go func() { down <- r.engine.Shutdown(timeout(t, time.Second)) }()
		c.expect("e2 error NETWORK_ERROR", "e1 error NETWORK_ERROR")
		c.execute("e3", "exit 0")
		c.expect("e3 error NETWORK_ERROR")
		if err := <-down; err != nil {
			t.Errorf("the engine's Shutdown returned %v", err)
		}
	})
}

// TestOutputLimitExact tests that both streams together are delivered exactly up to the limit.
func TestOutputLimitExact(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	c := r.connect()
	for _, limit := range []int{1, 25, maxData - 1, maxData, maxData + 1, 3*maxData + 7, 1 << 20} {
		for name, script := range map[string]string{
			"stdout":        "flood stdout 2000000",
			"both":          "repeat 100 write stderr 0123456789abcdef\nflood stdout 2000000",
			"by characters": "dribble stdout " + strings.Repeat("x", 2*25) + " 0s\nflood stderr 2000000",
		} {
			id := fmt.Sprint(name, " ", limit)
			c.execute(id, script, `"timeout_ms":30000,"memory_mb":256`, fmt.Sprintf(`"max_output_bytes":%d`, limit))
			c.expect(id+" ack", id+" status running")
			got := 0
			m := c.receive()
			for ; m.Type == wire.Stdout || m.Type == wire.Stderr; m = c.receive() {
				got += len(m.Data)
			}
			if got != limit {
				t.Errorf("%s: received %d bytes", id, got)
			}
			if m.brief() != id+" status failed" {
				t.Fatalf("received %q", m.brief())
			}
			c.expect(id+" error OUTPUT_LIMIT", id+" result null")
		}
	}
}

// TestOutputLimitWhole tests that the limit never cuts a character and is never exceeded, also if
// U+FFFD takes more bytes than the program wrote.
func TestOutputLimitWhole(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	c := r.connect()
	for script, want := range map[string]string{
		"write stdout " + strings.Repeat("é", 100):          strings.Repeat("é", 16),
		"write stdout " + strings.Repeat("€", 100):          strings.Repeat("€", 11),
		`write stdout "` + strings.Repeat(`\xff`, 33) + `"`: strings.Repeat("\uFFFD", 11),
		`write stdout "` + strings.Repeat(`\xff`, 20) + `"`: strings.Repeat("\uFFFD", 11),
		`write stdout "` + strings.Repeat("x", 32) + `\xe2\x82"
write stdout "tail"`: strings.Repeat("x", 32),
	} {
		c.execute("e", script, `"timeout_ms":30000,"memory_mb":256`, `"max_output_bytes":33`)
		c.expect("e ack", "e status running")
		got := ""
		m := c.receive()
		for ; m.Type == wire.Stdout || m.Type == wire.Stderr; m = c.receive() {
			got += m.Data
		}
		if got != want {
			t.Errorf("%.40q: received %q, want %q", script, got, want)
		}
		if m.brief() != "e status failed" {
			t.Fatalf("%.40q: received %q", script, m.brief())
		}
		c.expect("e error OUTPUT_LIMIT", "e result null")
	}
}

// TestOutputAtOnce tests that output is sent while the program runs, without waiting for more
// output or a timer.
func TestOutputAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		c := r.connect()
		c.execute("e1", "write stdout a\nblock-until b\nwrite stdout b\nblock-until never")
		c.expect("e1 ack", "e1 status running")
		began := time.Now()
		c.expect("e1 stdout a")
		r.driver.Open("b")
		c.expect("e1 stdout b")
		if d := time.Since(began); d != 0 {
			t.Errorf("the output waited %v of the fake clock", d)
		}
	})
}

// TestLimitsReachTheDriver tests that the driver gets the limits of the request.
func TestLimitsReachTheDriver(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	c := r.connect()
	c.execute("e1", "", `"timeout_ms":1234,"memory_mb":77,"cpu_shares":99`)
	c.until("e1 result 0")
	c.execute("e2", "", `"timeout_ms":1234,"memory_mb":77`)
	c.until("e2 result 0")
	specs := r.driver.Specs()
	if got := specs[0].Limits; got.Memory != 77<<20 || got.CPUShares != 99 || got.Timeout != 1234*time.Millisecond || got.Output != 1<<20 {
		t.Errorf("the limits are %+v", got)
	}
	if got := specs[1].Limits; got.CPUShares != 512 {
		t.Errorf("cpu_shares is %d by default", got.CPUShares)
	}
}

// TestManyClients starts and cancels executions at random moments on many connections. Every
// acknowledged execution gets its messages in order, exactly one last message, and none after it.
func TestManyClients(t *testing.T) {
	r := newRig(t, engine.Config{MaxSandboxes: 8, MaxQueue: 20, Grace: 10 * time.Millisecond}, Options{})
	var wg sync.WaitGroup
	for range 4 {
		c := r.connect()
		wg.Go(func() { c.storm(60) })
	}
	wg.Wait()
	r.await("all sandboxes are gone", func() bool { return r.driver.Leaks() == nil })
}

// storm starts n executions, cancels every third, reuses ids and checks the order of all messages.
func (c *client) storm(n int) {
	scripts := []string{"print stdout hello", "exit 3", "flood stdout 100000", "sleep 5ms", "block-until never", "lost", "signal 9",
		"ignore-term\nblock-until never", "flood stderr 3000000"}
	go func() {
		for i := range n {
			c.execute(fmt.Sprint("e", i%40), scripts[i%len(scripts)], `"timeout_ms":50,"memory_mb":256`)
			if i%3 == 0 {
				c.cancel(fmt.Sprint("e", i%40))
			}
		}
		c.ping()
	}()
	state := map[string]string{} // "", "ack", "running", "ended": a terminal status
	left, ponged := 0, false
	for left > 0 || !ponged {
		m := c.receive()
		was := state[m.ID]
		switch {
		case m.Type == wire.Pong:
			ponged = true
		case m.Type == wire.Ack && was == "":
			state[m.ID] = "ack"
			left++
		case m.Type == wire.StatusType && m.Status == wire.Running && was == "ack":
			state[m.ID] = "running"
		case m.Type == wire.StatusType && m.Status == wire.Cancelled && was == "ack", m.Type == wire.StatusType && m.Status != wire.Running && was == "running":
			state[m.ID] = "ended"
		case (m.Type == wire.Stdout || m.Type == wire.Stderr) && was == "running":
		case m.Type == wire.ErrorType && m.Code == wire.CodeOutputLimit && was == "ended":
		case m.Type == wire.ResultType && was == "ended",
			m.Type == wire.ErrorType && m.Code == wire.CodeInternalError && was == "running":
			delete(state, m.ID)
			left--
		case m.Type == wire.ErrorType && (m.Code == wire.CodeUnknownExecution || m.Code == wire.CodeSandboxOverloaded):
		case m.Type == wire.ErrorType && m.Code == wire.CodeInvalidRequest && strings.Contains(m.Message, "with this id is under way"):
			// The execution with the id may have ended since the message was read.
		default:
			c.t.Errorf("%q came when the execution was %q", m.brief(), was)
			return
		}
	}
}

// TestRecordOnRequest tests that executions are stored only if Options.Record is set.
func TestRecordOnRequest(t *testing.T) {
	for _, record := range []bool{false, true} {
		var kept atomic.Int64
		r := newRig(t, engine.Config{Record: func(_ sandbar.Job, s engine.Sink) (engine.Sink, func(sandbar.Result, error)) {
			kept.Add(1)
			return s, nil
		}}, Options{Record: record})
		c := r.connect()
		c.execute("e1", "write stdout a")
		c.expect("e1 ack", "e1 status running", "e1 stdout a", "e1 status completed", "e1 result 0")
		if got := kept.Load() == 1; got != record {
			t.Errorf("with Record %v the execution was kept: %v", record, got)
		}
	}
}
