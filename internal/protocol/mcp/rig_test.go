package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

var backends backend.Pool

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// patience bounds failing tests. No test depends on a duration.
const patience = 60 * time.Second

// rig is a server over a real engine.
type rig struct {
	t      testing.TB
	engine *engine.Engine
	server *Server
	tokens string // the file of tenants' tokens, after serve
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	testenv.Need(t, testenv.Python)
	return newRigOf(t, backends.New(t), o)
}

func newRigOf(t testing.TB, d driver.Driver, o Options) *rig {
	t.Helper()
	e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true, PausedDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if o.Preview == nil {
		o.Preview = func(_ *http.Request, id sandbar.ID, port int, public bool) (string, error) {
			return "http://" + string(id) + ".example/", nil
		}
	}
	r := &rig{t: t, engine: e, server: New(e, o)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.server.Close()
		if n := len(e.List(context.Background())) + len(e.Paused(context.Background())); n != 0 {
			t.Errorf("%d sandboxes are left after the sessions' end", n)
		}
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// client is a client with one session.
type client struct {
	*sdk.ClientSession
	t        testing.TB
	progress chan string
}

// connect begins a session in memory.
func (r *rig) connect() *client {
	r.t.Helper()
	here, there := sdk.NewInMemoryTransports()
	if _, err := r.server.sdk.Connect(r.t.Context(), there, nil); err != nil {
		r.t.Fatal(err)
	}
	return newClient(r.t, here)
}

func newClient(t testing.TB, transport sdk.Transport) *client {
	t.Helper()
	c := &client{t: t, progress: make(chan string, 10_000)}
	x := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) { c.progress <- n.Params.Message },
	})
	s, err := x.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = s
	t.Cleanup(func() { s.Close() })
	return c
}

type object = map[string]any

// try calls a tool.
func (c *client) try(tool string, arguments object) *sdk.CallToolResult {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		c.t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// call calls a tool, which must succeed, and returns its text and its structured result.
func (c *client) call(tool string, arguments object) (string, object) {
	c.t.Helper()
	r := c.try(tool, arguments)
	if r.IsError {
		c.t.Fatalf("%s %v: %s", tool, arguments, textOf(r))
	}
	return textOf(r), structureOf(c.t, r)
}

// refused calls a tool, which must fail, and returns the error's code and text.
func (c *client) refused(tool string, arguments object) (code, text string) {
	c.t.Helper()
	r := c.try(tool, arguments)
	if !r.IsError {
		c.t.Fatalf("%s %v: no error: %s", tool, arguments, textOf(r))
	}
	body, _ := r.Meta[errorKey].(map[string]any)
	code, _ = body["code"].(string)
	if fix, _ := body["fix"].(string); code == "" || fix == "" || !strings.Contains(textOf(r), "next step: "+fix) {
		c.t.Errorf("%s %v: error without code or next step: %s %v", tool, arguments, textOf(r), r.Meta)
	}
	return code, textOf(r)
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func structureOf(t testing.TB, r *sdk.CallToolResult) object {
	t.Helper()
	b, err := json.Marshal(r.StructuredContent)
	var o object
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}
