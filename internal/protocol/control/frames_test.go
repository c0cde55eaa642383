package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// socketExec is a command over a WebSocket from its client's side.
type socketExec struct {
	t  testing.TB
	ws *websocket.Conn
}

// dialSocket opens a WebSocket for a command. headers are pairs. It returns the response if the
// daemon refuses.
func dialSocket(r *rig, bearer, id string, protocols []string, headers ...string) (*socketExec, *http.Response) {
	r.t.Helper()
	h := http.Header{"Authorization": {"Bearer " + bearer}}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+r.addr+"/v1/sandboxes/"+id+"/exec", &websocket.DialOptions{Subprotocols: protocols, HTTPHeader: h})
	if err != nil {
		if resp == nil {
			r.t.Fatal(err)
		}
		return nil, resp
	}
	ws.SetReadLimit(-1)
	r.t.Cleanup(func() { ws.CloseNow() })
	return &socketExec{r.t, ws}, nil
}

// startSocket begins a command over a WebSocket.
func startSocket(r *rig, id string, x wire.Exec) *socketExec {
	r.t.Helper()
	c, resp := dialSocket(r, token, id, []string{wire.UpgradeExec})
	if resp != nil {
		r.t.Fatal(resp.Status)
	}
	c.request(x)
	return c
}

func (c *socketExec) request(x wire.Exec) {
	c.t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(wire.Append(nil, wire.Request, b))
}

// send sends one message.
func (c *socketExec) send(message []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageBinary, message); err != nil {
		c.t.Error(err)
	}
}

// wait reads to the end of the command and of the connection. Each message must be one of whole
// frames. close is the status of the WebSocket's end.
func (c *socketExec) wait() (o *outcome, status websocket.StatusCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o = &outcome{}
	for {
		kind, message, err := c.ws.Read(ctx)
		if err != nil {
			return o, websocket.CloseStatus(err)
		}
		if kind != websocket.MessageBinary || len(message) == 0 {
			c.t.Errorf("a message of kind %v with %d bytes", kind, len(message))
		}
		in := wire.NewReader(bytes.NewReader(message))
		for {
			k, data, err := in.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				c.t.Fatalf("a message without whole frames: %v", err)
			}
			switch k {
			case wire.Started:
				o.started++
			case wire.Stdout:
				o.stdout.Write(data)
			case wire.Stderr:
				o.stderr.Write(data)
			case wire.Credit:
				n, err := wire.CreditOf(data)
				if err != nil {
					c.t.Error(err)
				}
				o.credit += n
			case wire.Ended:
				err = json.Unmarshal(data, &o.result)
			case wire.Failed:
				var e wire.Error
				err = json.Unmarshal(data, &e)
				o.failure = &e.Error
			}
			if err != nil {
				c.t.Error(err)
			}
		}
	}
}

// A command over a WebSocket has its input, both outputs and its result, and the WebSocket ends
// normally.
func TestSocket(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	c := startSocket(r, id, wire.Exec{Args: []string{"echo-stdin", ";", "write", "stderr", "b"}, Stdin: true})
	c.send(slices.Concat(wire.Append(nil, wire.Stdin, []byte("one ")), wire.Append(nil, wire.Stdin, []byte("two"))))
	c.send(nil) // a message without a frame
	c.send(wire.Append(nil, wire.Stdin, nil))
	o, status := c.wait()
	if o.stdout.String() != "one two" || o.stderr.String() != "b" || o.started != 1 || o.result == nil || o.result.Outcome != "exited" || status != websocket.StatusNormalClosure {
		t.Errorf("%+v %+v, status %d", o.result, o.failure, status)
	}
	o, status = startSocket(r, id, wire.Exec{Args: []string{"flood", "stdout", "5000000"}}).wait()
	if o.stdout.Len() != 5_000_000 || status != websocket.StatusNormalClosure {
		t.Fatalf("%d bytes, status %d", o.stdout.Len(), status)
	}
	for i, b := range o.stdout.Bytes() {
		if b != faulty.Pattern(int64(i)) {
			t.Fatalf("byte %d is %q", i, b)
		}
	}
	if o, _ := startSocket(r, id, wire.Exec{Args: []string{"nothing"}}).wait(); o.failure == nil || o.failure.Code != sandbar.NotFound {
		t.Errorf("no such program: %+v", o.failure)
	}
	r.noConnections(id)
}

// noConnections waits until a sandbox has no connection.
func (r *rig) noConnections(id string) {
	r.t.Helper()
	e := r.server.known(sandbar.ID(id))
	await(r.t, "no connection is counted", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.taken == 0
	})
}

// The ways to end a command over a WebSocket. None of them waits for the program to read its input.
func TestSocketEnds(t *testing.T) {
	full := wire.Append(nil, wire.Stdin, bytes.Repeat([]byte("x"), wire.Window))
	for name, end := range map[string]func(*socketExec){
		"cancel":              func(c *socketExec) { c.send(wire.Append(nil, wire.Cancel, nil)) },
		"cancel behind input": func(c *socketExec) { c.send(append(slices.Clone(full), wire.Append(nil, wire.Cancel, nil)...)) },
		"too much input":      func(c *socketExec) { c.send(full); c.send(wire.Append(nil, wire.Stdin, []byte("x"))) },
		"a frame of no kind":  func(c *socketExec) { c.send(wire.Append(nil, '?', nil)) },
		"a second request":    func(c *socketExec) { c.request(wire.Exec{Args: []string{"dir"}}) },
		"half a header":       func(c *socketExec) { c.send([]byte("i\x00")) },
		"half a frame": func(c *socketExec) {
			frame := wire.Append(nil, wire.Stdin, []byte("xy"))
			c.send(frame[:len(frame)-1])
			c.send(frame[len(frame)-1:])
		},
		"a header alone": func(c *socketExec) {
			frame := wire.Append(nil, wire.Stdin, []byte("xy"))
			c.send(frame[:5])
			c.send(frame[5:])
		},
		"a frame is too large": func(c *socketExec) { c.send([]byte("i\xff\xff\xff\xff")) },
		"a size of no terminal": func(c *socketExec) {
			c.send(wire.AppendResize(nil, wire.TerminalSize{}))
		},
		"text": func(c *socketExec) {
			if err := c.ws.Write(context.Background(), websocket.MessageText, wire.Append(nil, wire.Stdin, []byte("x"))); err != nil {
				c.t.Error(err)
			}
		},
		"a message is too large": func(c *socketExec) {
			// the daemon can close before it has read all of it
			c.ws.Write(context.Background(), websocket.MessageBinary, bytes.Repeat(wire.Append(nil, wire.Stdin, nil), maxMessage/5+1))
		},
		"the client closes":   func(c *socketExec) { c.ws.Close(websocket.StatusGoingAway, "") },
		"the client hangs up": func(c *socketExec) { c.ws.CloseNow() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{}, nil)
			id := string(r.create("{}").ID)
			c := startSocket(r, id, wire.Exec{Args: []string{"block-until", "never"}, Stdin: true})
			<-r.driver.Reached("never")
			end(c)
			if strings.HasPrefix(name, "cancel") {
				if o, status := c.wait(); o.result == nil || o.result.Outcome != "cancelled" || status != websocket.StatusNormalClosure {
					t.Errorf("%+v, status %d", o, status)
				}
			}
			await(t, "the program has ended", func() bool { return r.driver.Counts().Processes == 0 })
			c.ws.CloseNow()
			r.noConnections(id)
			if n := r.driver.Counts().Sandboxes; n != 1 {
				t.Errorf("%d sandboxes", n)
			}
		})
	}
}

// A client that does not read for too long loses its command.
func TestSocketSlowReader(t *testing.T) {
	r := newRig(t, Options{StallTimeout: 50 * time.Millisecond}, nil)
	id := string(r.create("{}").ID)
	c := startSocket(r, id, wire.Exec{Args: []string{"flood", "stdout", "1000000000"}})
	if _, first, err := c.ws.Read(context.Background()); err != nil || wire.Kind(first[0]) != wire.Started {
		t.Fatalf("%q, %v", first, err)
	}
	await(t, "the program has ended", func() bool { return r.driver.Counts().Processes == 0 })
	r.noConnections(id)
}

// The end of the daemon ends a command, also of a client that neither reads nor closes.
func TestSocketShutdown(t *testing.T) {
	r := newRig(t, Options{}, nil)
	id := string(r.create("{}").ID)
	reads := startSocket(r, id, wire.Exec{Args: []string{"block-until", "never"}})
	<-r.driver.Reached("never")
	startSocket(r, id, wire.Exec{Args: []string{"block-until", "later"}})
	<-r.driver.Reached("later")
	ended, end := context.WithCancel(context.Background())
	end()
	shut := make(chan error, 1)
	go func() { shut <- r.server.Shutdown(ended) }()
	if o, _ := reads.wait(); o.result == nil || o.result.Outcome != "cancelled" {
		t.Errorf("%+v %+v", o.result, o.failure)
	}
	if err := <-shut; err != context.Canceled {
		t.Error(err)
	}
	if n := r.driver.Counts().Processes; n != 0 {
		t.Errorf("%d processes after the shutdown", n)
	}
}

// Who may open a WebSocket: pages of the daemon, and programs without an Origin, that may use the
// sandbox and ask for the subprotocol.
func TestSocketRefused(t *testing.T) {
	r := newRig(t, Options{}, nil)
	made := r.create(`{"secret":"` + secret + `"}`)
	id := string(made.ID)
	own := []string{wire.UpgradeExec}
	for _, tc := range []struct {
		name      string
		bearer    string
		id        string
		protocols []string
		headers   []string
		status    int // 0: accepted
		code      sandbar.Code
	}{
		{"a program", token, id, own, nil, 0, ""},
		{"a page of the daemon", token, id, own, []string{"Origin", "http://" + r.addr}, 0, ""},
		{"the sandbox's secret", secret, id, own, nil, 0, ""},
		{"the subprotocol among others", token, id, []string{"other", wire.UpgradeExec}, nil, 0, ""},
		{"an allowed origin", token, id, own, []string{"Origin", allowedOrigin}, 403, sandbar.Denied},
		{"a foreign origin", token, id, own, []string{"Origin", "https://evil.example"}, 403, sandbar.Denied},
		{"a preview's page", token, id, own, []string{"Origin", "http://8000-" + id[3:] + ".localhost"}, 403, sandbar.Denied},
		{"no origin", token, id, own, []string{"Origin", "null"}, 403, sandbar.Denied},
		{"no subprotocol", token, id, nil, nil, 400, sandbar.Invalid},
		{"another subprotocol", token, id, []string{"other"}, nil, 400, sandbar.Invalid},
		{"no token", "", id, own, nil, 401, sandbar.Unauthenticated},
		{"a token for reading", readerToken, id, own, nil, 403, sandbar.Denied},
		{"another tenant", strangerToken, id, own, nil, 404, sandbar.NotFound},
		{"no sandbox", token, "nobody", own, nil, 404, sandbar.NotFound},
	} {
		c, resp := dialSocket(r, tc.bearer, tc.id, tc.protocols, tc.headers...)
		if tc.status == 0 {
			if c == nil {
				t.Errorf("%s: %s", tc.name, resp.Status)
				continue
			}
			if c.ws.Subprotocol() != wire.UpgradeExec {
				t.Errorf("%s: subprotocol %q", tc.name, c.ws.Subprotocol())
			}
			c.request(wire.Exec{Args: []string{"exit", "0"}})
			if o, _ := c.wait(); o.result == nil {
				t.Errorf("%s: %+v", tc.name, o.failure)
			}
			continue
		}
		if c != nil {
			t.Errorf("%s: accepted", tc.name)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != tc.status || errorOf(t, string(body)).Code != tc.code {
			t.Errorf("%s: %d %s %v", tc.name, resp.StatusCode, body, err)
		}
	}
	if n := r.driver.Counts().Processes; n != 0 {
		t.Errorf("%d processes", n)
	}
}
