package stdio

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/wasm"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// newEngine returns an engine for one sandbox, as the command stdio makes it.
func newEngine(t testing.TB, d driver.Driver, change func(*engine.Config)) *engine.Engine {
	t.Helper()
	c := engine.Config{Driver: d, MaxSandboxes: 2, IdleTimeout: -1, MaxLifetime: -1, Grace: 20 * time.Millisecond}
	c.Min.Memory, c.Default.Memory, c.Max.Memory = 4<<20, 64<<20, 1<<30
	c.Max.Timeout = time.Hour
	if change != nil {
		change(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

func wasmDriver(t testing.TB) driver.Driver {
	t.Helper()
	testenv.Need(t, testenv.WasmModules)
	cache, err := testenv.Kept("wasm")
	if err != nil {
		t.Fatal(err)
	}
	d, err := wasm.New(driver.Host{Options: map[string]string{"modules": "../../wasm/artefact", "cache": cache}})
	if err == nil {
		err = d.Prepare(t.Context()) // takes longer than a request on a busy host
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newServer returns a server over a driver.
func newServer(t testing.TB, d driver.Driver, opt Options, change func(*engine.Config)) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the very first one waits for the compiler
	defer cancel()
	s, err := New(ctx, newEngine(t, d, change), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// session is a server with a client's connection.
type session struct {
	in    *io.PipeWriter
	lines chan string // closed at the end; has room for a whole transcript
	err   chan error  // the result of Serve
}

func serve(t testing.TB, s *Server) *session {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &session{in: inW, lines: make(chan string, 1000), err: make(chan error, 1)}
	go func() {
		err := s.Serve(context.Background(), inR, outW)
		outW.Close()
		c.err <- err
	}()
	go func() {
		defer close(c.lines)
		r := bufio.NewReaderSize(outR, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
		for range c.lines {
		}
	})
	return c
}

// Send sends a line. "@eof" ends the input; "@raw TEXT" is sent without a line end.
func (c *session) Send(_ context.Context, line string) error {
	switch {
	case line == "@eof":
		return c.in.Close()
	case strings.HasPrefix(line, "@raw "):
		_, err := io.WriteString(c.in, strings.TrimPrefix(line, "@raw "))
		return err
	case line == "@blank":
		line = ""
	}
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

var errOver = errors.New("the server has ended")

// Receive returns the next response; the end of the output is "@over".
func (c *session) Receive(ctx context.Context) (string, error) {
	select {
	case line, ok := <-c.lines:
		if ok {
			return line, nil
		}
		select {
		case err := <-c.err:
			if err != nil {
				return "@failed " + err.Error(), nil
			}
			return "@over", nil
		default:
			return "", errOver
		}
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (c *session) Close() error { return c.in.Close() }

// TestTranscripts plays testdata/*.txtar against the wasm driver.
func TestTranscripts(t *testing.T) {
	wiretest.Protocol{
		Patience: 60 * time.Second,
		Serve: func(t *testing.T, _ string) wiretest.Dial {
			s := newServer(t, wasmDriver(t), Options{Memory: 64 << 20, Disk: 16 << 20, MaxLine: 1 << 20, MaxFile: 64 << 10}, func(c *engine.Config) {
				c.Default.Output, c.Max.Output = 100_000, 100_000
			})
			return func(context.Context) (wiretest.Conn, error) { return serve(t, s), nil }
		},
	}.Run(t, "testdata/*.txtar")
}
