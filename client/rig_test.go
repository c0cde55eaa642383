package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/protocol/control"
	"github.com/sandbar-dev/sandbar/internal/protocol/executor"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds failing tests. No test depends on a duration.
const patience = 30 * time.Second

const token = "the-daemons-own-token"

// newDaemon serves a complete daemon with the driver local at an address, and returns a client and
// a sandbox of it.
func newDaemon(t *testing.T, listen string) (*Client, string) {
	t.Helper()
	testenv.Need(t, testenv.Linux)
	url, stop, err := Serve(t.TempDir(), listen, token)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(url, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	s, err := c.Create(within(t), wire.Create{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	return c, string(s.ID)
}

// Serve serves a daemon with the driver local at an address, and returns its URL. It is exported
// for the examples, which are in another package.
func Serve(dir, listen, token string) (url string, stop func() error, err error) {
	d, err := local.Factory().New(driver.Host{RuntimeDir: dir})
	if err != nil {
		return "", nil, err
	}
	// The driver enforces no limits, and no test requests one.
	none := sandbar.Limits{Memory: sandbar.Unlimited, PIDs: sandbar.Unlimited}
	// An interrupted cell must report its end within the grace, also on a busy host.
	e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true, Default: none, Grace: 5 * time.Second})
	if err != nil {
		return "", nil, err
	}
	api := control.New(e, control.Options{NewExecutor: func(s *engine.Sandbox) control.Executor {
		return executor.New(s, executor.Options{Authorize: func(*http.Request) error { return nil }})
	}})
	listener, err := httpd.Listen(httpd.Options{Listen: listen, Token: token, Routes: map[string]http.Handler{"/sandboxes": api, "/sandboxes/": api}})
	if err != nil {
		return "", nil, err
	}
	served := make(chan error, 1)
	go func() { served <- listener.Serve() }()
	return listener.URL(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		api.Close()
		return errors.Join(listener.Shutdown(ctx), <-served, e.Shutdown(ctx))
	}, nil
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// sh runs a shell command, which must succeed, and returns its output.
func sh(t *testing.T, c *Client, id, command string) string {
	t.Helper()
	var out strings.Builder
	r, err := c.Exec(within(t), id, wire.Exec{Args: []string{"sh", "-c", command}}, Streams{Stdout: &out, Stderr: &out})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v: %s", command, r, err, &out)
	}
	return out.String()
}
