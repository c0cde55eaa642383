package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// clients load the daemon, each with its operations in turn. Operations with a high processor load
// are listed once, frequent ones repeatedly.
func (s *soak) clients() [][]deed {
	var all [][]deed
	for range 3 {
		f := &fathomClient{s: s}
		all = append(all, []deed{
			f.program("python", hello, "hello world\n"), f.program("shell", "echo hello world", "hello world\n"),
			f.program("python", "import json,sys; print(json.dumps({'a':[1,2]})); sys.exit(0)", "{\"a\": [1, 2]}\n"),
			f.program("javascript", "console.log('hello world')", "hello world\n"), f.pinged(),
		})
	}
	t := &fathomClient{s: s}
	all = append(all, []deed{
		t.ends("timeout", request{Language: "shell", Code: stubborn, TimeoutMS: 300}, "timeout", ""),
		t.ends("out of memory", request{Language: "python", Code: "x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"}, "oom", ""),
		t.ends("flood", request{Language: "shell", Code: "yes flood", Most: 1 << 20}, "failed", "OUTPUT_LIMIT"),
		t.cancelled(),
		// On a busy machine the kernel frees dead processes so late that their memory reaches the limit.
		t.ends("fork bomb", request{Language: "shell", Code: "(f() { f | f & }; f) 2>/dev/null; exec sleep 1000", TimeoutMS: 500}, "timeout oom", ""),
		t.ends("unknown language", request{Language: "cobol", Code: "x"}, "", "LANGUAGE_NOT_SUPPORTED"),
		t.readSlowly(),
		t.program("python", "print(open('/etc/passwd').read() == '')\nraise SystemExit(0)", ""),
	})
	all = append(all, []deed{s.vanish("python", "print('x' * 100, flush=True)\nimport time\ntime.sleep(1000)"), s.vanish("shell", "yes"), s.vanish("shell", stubborn), s.dribble()})
	all = append(all, s.longLived(), s.commands(), s.iiiClient(), s.stdioClient(), []deed{s.killTemplate(), s.rest(5 * time.Second)})
	return all
}

// fathomClient speaks Fathom. It makes a new connection after an error and after every hundred
// executions.
type fathomClient struct {
	s    *soak
	line *line
}

// with calls f with the connection.
func (c *fathomClient) with(ctx context.Context, f func(*line) error) error {
	if c.line != nil && c.line.n >= 100 {
		c.line.c.CloseNow()
		c.line = nil
	}
	if c.line == nil {
		l, err := c.s.daemon.dial(ctx)
		if err != nil {
			return err
		}
		l.c.SetReadLimit(-1)
		c.line = l
	}
	err := f(c.line)
	if err != nil {
		c.line.c.CloseNow()
		c.line = nil
	}
	return err
}

// program is an execution that exits with 0, with this output if it is not "".
func (c *fathomClient) program(language, code, output string) deed {
	return deed{"fathom: " + language, func(ctx context.Context) error {
		return c.with(ctx, func(l *line) error {
			e, err := l.execute(ctx, request{Language: language, Code: code})
			if err == nil && (e.exit != 0 || e.status != "completed" || output != "" && string(e.stdout) != output) {
				err = fmt.Errorf("status %s, exit code %d, error %s %s, output %.100q", e.status, e.exit, e.code, e.message, e.stdout)
			}
			return err
		})
	}}
}

// ends is an execution that ends in another way, with one of the statuses.
func (c *fathomClient) ends(name string, r request, status, code string) deed {
	return deed{"fathom: " + name, func(ctx context.Context) error {
		return c.with(ctx, func(l *line) error {
			e, err := l.execute(ctx, r)
			if err == nil && (!slices.Contains(strings.Split(status, " "), e.status) || e.code != code || r.Most > 0 && len(e.stdout) != r.Most) {
				err = fmt.Errorf("status %q, error %q %s, %d bytes of output", e.status, e.code, e.message, len(e.stdout))
			}
			return err
		})
	}}
}

func (c *fathomClient) cancelled() deed {
	return deed{"fathom: cancel", func(ctx context.Context) error {
		return c.with(ctx, func(l *line) error {
			id, err := l.begin(ctx, request{Language: "shell", Code: "echo up; " + stubborn})
			if err != nil {
				return err
			}
			e, err := l.follow(ctx, id, func() error { return l.send(ctx, map[string]any{"type": "cancel", "id": id}) })
			if err == nil && e.status != "cancelled" {
				err = fmt.Errorf("status %s, error %s %s", e.status, e.code, e.message)
			}
			return err
		})
	}}
}

// pinged is a ping. Its answer is a message without an id.
func (c *fathomClient) pinged() deed {
	return deed{"fathom: ping", func(ctx context.Context) error {
		return c.with(ctx, func(l *line) error {
			if err := l.send(ctx, map[string]any{"type": "ping"}); err != nil {
				return err
			}
			_, b, err := l.c.Read(ctx)
			if err == nil && !bytes.Contains(b, []byte(`"pong"`)) {
				err = fmt.Errorf("a ping is answered with %.200s", b)
			}
			return err
		})
	}}
}

// readSlowly leaves a megabyte of output unread for some time.
func (c *fathomClient) readSlowly() deed {
	return deed{"fathom: slow reader", func(ctx context.Context) error {
		return c.with(ctx, func(l *line) error {
			id, err := l.begin(ctx, request{Language: "shell", Code: "head -c 1000000 /dev/zero | tr '\\0' x"})
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			e, err := l.follow(ctx, id, nil)
			if err == nil && (e.exit != 0 || len(e.stdout) != 1000000) {
				err = fmt.Errorf("exit code %d, %d bytes", e.exit, len(e.stdout))
			}
			return err
		})
	}}
}

// vanish starts a program, reads its first output and closes the connection.
func (s *soak) vanish(language, code string) deed {
	return deed{"fathom: client vanishes", func(ctx context.Context) error {
		l, err := s.daemon.dial(ctx)
		if err != nil {
			return err
		}
		defer l.c.CloseNow()
		if _, err := l.begin(ctx, request{Language: language, Code: code, TimeoutMS: 20_000, Most: 1 << 20}); err != nil {
			return err
		}
		_, _, err = l.c.Read(ctx) // the ack
		return err
	}}
}

// dribble opens a connection, sends a few bytes slowly, and then nothing.
func (s *soak) dribble() deed {
	return deed{"http: dribble", func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.daemon.addr)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, b := range []byte("GET /health HTT") {
			if _, err := c.Write([]byte{b}); err != nil {
				return nil // the daemon may close the connection for inactivity
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}}
}

// longLived is a client of the daemon's own API and of its executors.
func (s *soak) longLived() []deed {
	create := func(ctx context.Context) (wire.Sandbox, error) { return s.api.Create(ctx, wire.Create{}) }
	within := func(name string, f func(context.Context, string) error) deed {
		return deed{"control: " + name, func(ctx context.Context) error {
			box, err := create(ctx)
			if err != nil {
				return err
			}
			return errors.Join(f(ctx, string(box.ID)), s.api.Stop(ctx, string(box.ID)))
		}}
	}
	return []deed{
		within("exec", func(ctx context.Context, id string) error {
			return s.exec(ctx, id, wire.Exec{Args: []string{"sh", "-c", "(setsid sleep 1000 &) ; cat"}}, "exited")
		}),
		within("exec, timeout", func(ctx context.Context, id string) error {
			return s.exec(ctx, id, wire.Exec{Args: []string{"sleep", "1000"}, Timeout: 0.3}, "timeout")
		}),
		within("files", s.files),
		within("executor: process", func(ctx context.Context, id string) error {
			p, err := s.api.StartProcess(ctx, id, "while :; do echo line; sleep 0.1; done", "", nil)
			if err != nil {
				return err
			}
			if _, err := s.api.Processes(ctx, id); err != nil {
				return err
			}
			return s.api.Kill(ctx, id, p.ID)
		}),
		{"control: client vanishes", func(ctx context.Context) error {
			box, err := create(ctx)
			if err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			// A client that has gone does not learn how the program ends.
			_, _ = s.api.Exec(short, string(box.ID), wire.Exec{Args: []string{"sleep", "1000"}}, client.Streams{Stdout: io.Discard, Stderr: io.Discard})
			return s.api.Stop(ctx, string(box.ID))
		}},
	}
}

// exec runs a command with some input, which it must print if it exits.
func (s *soak) exec(ctx context.Context, id string, x wire.Exec, outcome string) error {
	input := rand.Text()
	var out bytes.Buffer
	r, err := s.api.Exec(ctx, id, x, client.Streams{Stdin: strings.NewReader(input), Stdout: &out, Stderr: io.Discard})
	if err == nil && (r.Outcome != outcome || outcome == "exited" && out.String() != input) {
		err = fmt.Errorf("%v ended as %s with output %.100q", x.Args, r.Outcome, out.String())
	}
	return err
}

func (s *soak) files(ctx context.Context, id string) error {
	want := bytes.Repeat([]byte(rand.Text()), 10_000)
	if err := s.api.Upload(ctx, id, "/tmp/file", bytes.NewReader(want), int64(len(want)), 0, false); err != nil {
		return err
	}
	d, err := s.api.Download(ctx, id, "/tmp/file")
	if err != nil {
		return err
	}
	defer d.Close()
	got, err := io.ReadAll(d)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes came back of %d, or others", len(got), len(want))
	}
	return err
}

// commands is a user of the command line.
func (s *soak) commands() []deed {
	sandbar := func(ctx context.Context, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, s.lab.sandbar, args...)
		cmd.Env = append(os.Environ(), "SANDBAR_TOKEN="+s.daemon.token, "SANDBAR_URL=http://"+s.daemon.addr, "SANDBAR_STATE_DIR="+s.daemon.dir+"/state")
		out, err := cmd.Output()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%v: %w: %.300s", args, err, e.Stderr)
		}
		return strings.TrimSpace(string(out)), err
	}
	return []deed{
		{"command line: create, exec, stop", func(ctx context.Context) error {
			id, err := sandbar(ctx, "create")
			if err != nil {
				return err
			}
			out, err := sandbar(ctx, "exec", id, "--", "echo", "hello")
			if err == nil && out != "hello" {
				err = fmt.Errorf("echo says %q", out)
			}
			_, serr := sandbar(ctx, "stop", id)
			return errors.Join(err, serr)
		}},
		s.rest(time.Second),
	}
}

// iiiClient is a worker of the iii engine. It abandons some sandboxes with a connection that breaks
// during a call.
func (s *soak) iiiClient() []deed {
	var x *iiiLab
	with := func(name string, f func(id string) error) deed {
		return deed{"iii: " + name, func(context.Context) (err error) {
			if x == nil {
				x = &iiiLab{daemon: s.daemon, url: s.iii, pending: map[string]chan iiiResult{}}
				if err := x.connect(); err != nil {
					return err
				}
			}
			id, err := x.create(nil)
			if err == nil {
				err = errors.Join(f(id), x.remove(id))
			}
			if err != nil {
				x.ws.CloseNow()
				x = nil
			}
			return err
		}}
	}
	return []deed{
		with("exec", func(id string) error { return x.sh(id, "test $((6*7)) = 42") }),
		with("files", func(id string) error {
			if _, err := x.upload(id, "/tmp/file", 1<<20); err != nil {
				return err
			}
			_, err := x.download(id, "/tmp/file", 1<<20)
			return err
		}),
		with("background", func(id string) error {
			return x.sh(id, "(setsid sh -c 'trap \"\" TERM; sleep 1000' >/dev/null 2>&1 &)")
		}),
		with("connection breaks", func(id string) error {
			if _, err := x.begin("sandbox::exec", object{"sandbox_id": id, "argv": []string{"sleep", "1000"}}); err != nil {
				return err
			}
			x.ws.CloseNow()
			s.mu.Lock()
			s.broken = append(s.broken, time.Now())
			s.mu.Unlock()
			x = &iiiLab{daemon: s.daemon, url: s.iii, pending: map[string]chan iiiResult{}}
			return x.connect()
		}),
	}
}

// stdioClient uses its own process. It kills the process from time to time, and nothing may remain.
func (s *soak) stdioClient() []deed {
	var x *stdioSandbox
	with := func(name string, f func() error) deed {
		return deed{"stdio: " + name, func(context.Context) (err error) {
			if x == nil {
				if x, err = startStdio(s.lab.sandbar); err != nil {
					return err
				}
				s.stdio.Store(int64(x.cmd.Process.Pid))
			}
			return f()
		}}
	}
	end := func() error {
		x.cmd.Process.Kill()
		_ = x.stop() // it reports the kill
		s.stdio.Store(0)
		x = nil
		return nil
	}
	return []deed{
		with("shell", func() error { return x.shell("echo a | tr a b", "b\n") }),
		with("python", func() error { return x.shell("python3 -c 'print(6*7)'", "42\n") }),
		with("javascript", func() error { return x.shell("node -e 'console.log(6*7)'", "42\n") }),
		with("timeout", func() error {
			a, err := x.ask(map[string]any{"type": "shell", "command": "while :; do :; done", "time_limit_ms": 300})
			if err == nil && !a.TimedOut {
				err = fmt.Errorf("a loop ended with %+v", a)
			}
			return err
		}),
		with("reset", func() error {
			a, err := x.ask(map[string]any{"type": "reset"})
			if err == nil && !a.Success {
				err = errors.New(a.Error)
			}
			return err
		}),
		with("killed", end),
		s.rest(time.Second),
	}
}

// killTemplate kills a template: the forked interpreter or its parent.
func (s *soak) killTemplate() deed {
	return deed{"a template is killed", func(context.Context) error {
		all := s.descendants()
		for pid := range all {
			args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil || !bytes.HasPrefix(args, []byte("sandbar-agent\x00template\x00")) {
				continue
			}
			if mathrand.IntN(2) == 0 {
				for child, p := range all {
					if p.parent == pid {
						pid = child
					}
				}
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
				return err
			}
			return nil
		}
		return nil // the daemon is making it again
	}}
}

// rest does nothing, to limit the share of expensive or rare operations.
func (s *soak) rest(d time.Duration) deed {
	return deed{"rests", func(context.Context) error { time.Sleep(d); return nil }}
}
