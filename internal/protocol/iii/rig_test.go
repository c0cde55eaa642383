package iii

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// backends creates the real drivers.
var backends backend.Pool

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// patience bounds failing tests. No test depends on a duration.
const patience = 60 * time.Second

// rig is a server over an engine, with a client's address.
type rig struct {
	t      testing.TB
	engine *engine.Engine
	server *Server
	url    string // http
}

// config returns the settings of most tests.
func config(change ...func(*settings.Config)) settings.Config {
	c := settings.Default()
	c.ImageAllowlist = []string{"python", "node"}
	for _, f := range change {
		f(&c)
	}
	return c
}

// allHost uses the image "host" for every preset, whichever interpreters the host has.
type allHost struct{}

func (allHost) Find(_ context.Context, image settings.Image) (function.Root, error) {
	if image.Kind == settings.Preset {
		return function.Root{Image: sandbar.ImageHost}, nil
	}
	return function.Root{}, sandbar.Errorf(sandbar.NotFound, "there is no image %s", image.Name)
}

func (allHost) Pull(context.Context, settings.Image) (function.Root, error) {
	return function.Root{}, errors.New("the registry is not there")
}

// newFaulty starts a server whose programs are scripts of the faulty driver.
func newFaulty(t testing.TB, o Options) (*rig, *faulty.Driver) {
	t.Helper()
	d := faulty.New()
	r := newRig(t, d, o, nil)
	return r, d
}

func newRig(t testing.TB, d driver.Driver, o Options, change func(*engine.Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	c := engine.Config{Driver: d, AllowDegraded: true, Grace: 50 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	if r.engine, err = engine.New(c); err != nil {
		t.Fatal(err)
	}
	o.Engine = r.engine
	if o.Images == nil {
		o.Images = allHost{}
	}
	if o.Config.MaxConcurrentSandboxes == 0 {
		o.Config = config()
	}
	front, stop := o, func(context.Context) {}
	remote := strings.HasPrefix(t.Name(), throughAWorker)
	if remote {
		front.Engine = nil
	}
	if r.server, err = New(front); err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(r.server.Handler())
	r.url = listener.URL
	if remote {
		stop = r.join(o)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stop(ctx)
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if s := r.engine.Stats(); s.Sandboxes != 0 {
			t.Errorf("%d sandboxes are left", s.Sandboxes)
		}
		listener.Close()
		if err := r.engine.Shutdown(ctx); err != nil {
			t.Errorf("the engine's shutdown: %v", err)
		}
	})
	return r
}

// throughAWorker is the test below which the functions are those of a worker.
const throughAWorker = "TestThroughAWorker/"

// join connects a worker with the functions to the server.
func (r *rig) join(o Options) (stop func(context.Context)) {
	r.t.Helper()
	w, err := NewWorker(WorkerOptions{Options: o, URL: r.ws(), Version: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	c := r.connect()
	c.eventually(func() bool {
		return len(c.call("engine::functions::list", object{"prefix": "sandbox::"})["functions"].([]any)) == 16
	})
	c.close()
	return func(ctx context.Context) {
		cancel()
		<-ended
		if err := w.Close(ctx); err != nil {
			r.t.Errorf("the worker's end: %v", err)
		}
	}
}

func (r *rig) ws() string { return "ws" + strings.TrimPrefix(r.url, "http") }

// client is a minimal SDK.
type client struct {
	t   testing.TB
	rig *rig
	ws  *websocket.Conn
	id  struct{ Worker, Token string }

	mu      sync.Mutex
	pending map[string]chan message
	other   chan message // frames other than results
	done    chan struct{}
}

// message is a frame of the server.
type message struct {
	Type          string
	InvocationID  string `json:"invocation_id"`
	FunctionID    string `json:"function_id"`
	WorkerID      string `json:"worker_id"`
	ReattachToken string `json:"reattach_token"`
	Result        json.RawMessage
	Data          json.RawMessage
	Error         *bus.Error
}

func (r *rig) connect(headers ...http.Header) *client {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var o websocket.DialOptions
	if len(headers) > 0 {
		o.HTTPHeader = headers[0]
	}
	ws, _, err := websocket.Dial(ctx, r.ws(), &o)
	if err != nil {
		r.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c := &client{t: r.t, rig: r, ws: ws, pending: map[string]chan message{}, other: make(chan message, 100), done: make(chan struct{})}
	go c.read()
	r.t.Cleanup(c.close)
	first := c.next()
	if first.Type != "workerregistered" || first.WorkerID == "" {
		r.t.Fatalf("the first frame is %+v", first)
	}
	c.id.Worker, c.id.Token = first.WorkerID, first.ReattachToken
	return c
}

func (c *client) close() {
	c.ws.CloseNow()
	<-c.done
}

func (c *client) read() {
	defer close(c.done)
	for {
		_, b, err := c.ws.Read(context.Background())
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			c.t.Errorf("received a malformed frame: %q", b)
			return
		}
		c.mu.Lock()
		waiting := c.pending[m.InvocationID]
		delete(c.pending, m.InvocationID)
		c.mu.Unlock()
		if m.Type == "invocationresult" && waiting != nil {
			waiting <- m
			continue
		}
		c.other <- m
	}
}

// next returns the next frame that is no result.
func (c *client) next() message {
	c.t.Helper()
	select {
	case m := <-c.other:
		return m
	case <-time.After(patience):
		c.t.Fatal("received no frame")
		return message{}
	}
}

func (c *client) send(frame string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// begin invokes a function and returns the channel of its result.
func (c *client) begin(function, payload string) chan message {
	c.t.Helper()
	id := channel.NewUUID()
	done := c.expect(id)
	c.send(fmt.Sprintf(`{"type":"invokefunction","invocation_id":%q,"function_id":%q,"data":%s}`, id, function, payload))
	return done
}

func (c *client) expect(id string) chan message {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan message, 1)
	c.pending[id] = done
	return done
}

func await(t testing.TB, done chan message) message {
	t.Helper()
	select {
	case m := <-done:
		return m
	case <-time.After(patience):
		t.Fatal("received no result")
		return message{}
	}
}

// invoke invokes a function and returns its result.
func (c *client) invoke(function, payload string) message {
	c.t.Helper()
	return await(c.t, c.begin(function, payload))
}

// object is a JSON object.
type object map[string]any

// call invokes a function that must succeed.
func (c *client) call(function string, payload object) object {
	c.t.Helper()
	checkSchema(c.t, function, "request", text(payload))
	m := c.invoke(function, text(payload))
	if m.Error != nil {
		c.t.Fatalf("%s: %v", function, m.Error)
	}
	checkSchema(c.t, function, "response", string(m.Result))
	var o object
	if err := json.Unmarshal(m.Result, &o); err != nil {
		c.t.Fatalf("%s: %v: %s", function, err, m.Result)
	}
	return o
}

// failed invokes a function that must fail with a code, and returns the payload of the error.
func (c *client) failed(function string, payload object, code string) object {
	c.t.Helper()
	m := c.invoke(function, text(payload))
	if m.Error == nil {
		c.t.Fatalf("%s succeeded: %s; want %s", function, m.Result, code)
	}
	return c.detail(m.Error, code)
}

// detail decodes an error as known clients do.
func (c *client) detail(e *bus.Error, code string) object {
	c.t.Helper()
	raw, ok := strings.CutPrefix(e.Message, "handler error: ")
	var o object
	if err := json.Unmarshal([]byte(raw), &o); !ok || err != nil || e.Code != "invocation_failed" {
		c.t.Fatalf("the error is %v, want %s", e, code)
	}
	if o["code"] != code {
		c.t.Fatalf("the error is %v, want %s", e, code)
	}
	return o
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// create creates a sandbox.
func (c *client) create() string {
	c.t.Helper()
	return c.call("sandbox::create", object{"image": "python"})["sandbox_id"].(string)
}

// sh runs a script in a sandbox and returns its output; it must exit 0.
func (c *client) sh(id, script string) string {
	c.t.Helper()
	r := c.call("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sh", "-c", script}})
	if r["success"] != true {
		c.t.Fatalf("%s: %v", script, r)
	}
	return r["stdout"].(string)
}

// channel creates a channel and returns its refs.
func (c *client) channel() (reader, writer channel.Ref) {
	c.t.Helper()
	m := c.invoke("engine::channels::create", `{}`)
	var refs struct{ Reader, Writer channel.Ref }
	if m.Error != nil || json.Unmarshal(m.Result, &refs) != nil {
		c.t.Fatalf("no channel: %v", m.Error)
	}
	return refs.Reader, refs.Writer
}

// dial opens an end of a channel.
func (c *client) dial(ref channel.Ref, dir string) *websocket.Conn {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, c.rig.ws()+"/ws/channels/"+ref.ChannelID+"?key="+ref.AccessKey+"&dir="+dir, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c.t.Cleanup(func() { ws.CloseNow() })
	return ws
}

// upload writes bytes into a channel in pieces and closes it.
func upload(t testing.TB, ws *websocket.Conn, r io.Reader) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := ws.Write(context.Background(), websocket.MessageBinary, buf[:n]); err != nil {
				t.Errorf("upload: %v", err)
				return
			}
		}
		if err != nil {
			break
		}
	}
	ws.Close(websocket.StatusNormalClosure, "stream_complete")
}

// download reads a channel to its end.
func download(t testing.TB, ws *websocket.Conn, w io.Writer) (status websocket.StatusCode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	for {
		kind, r, err := ws.Reader(ctx)
		if err != nil {
			return websocket.CloseStatus(err)
		}
		to := w
		if kind != websocket.MessageBinary {
			to = io.Discard // a side message
		}
		if _, err := io.Copy(to, r); err != nil {
			t.Errorf("download: %v", err)
		}
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// eventually waits for a state that no message reports.
func (c *client) eventually(ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatal("it did not come about")
		}
	}
}
