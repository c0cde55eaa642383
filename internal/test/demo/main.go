package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary := flag.String("sandbar", filepath.Join("bin", "sandbar"), "the server's `program`")
	flag.Parse()
	s := &screen{w: os.Stdout, colour: os.Getenv("NO_COLOR") == "" && terminal(os.Stdout)}
	if err := show(ctx, *binary, s); err != nil {
		s.printf("\n%s\n", s.styled(red, err.Error()))
		os.Exit(1)
	}
	s.printf("\n%s\n", s.styled(green, "All as expected."))
}

// show runs the whole demonstration. Its error names the unexpected results.
func show(ctx context.Context, binary string, s *screen) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	adoptOrphans()
	s.heading("the server")
	srv, err := start(ctx, binary)
	if err != nil {
		return err
	}
	defer srv.remove()
	s.printf("  %s serve --listen %s    (process %d, with a fresh token)\n", binary, srv.address, srv.cmd.Process.Pid)
	failures, err := play(ctx, s, srv)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, srv.lastWords())
	}
	s.heading("the end")
	if err := srv.stop(); err != nil {
		failures = append(failures, "the server's end")
		s.verdict(err)
	}
	fault := srv.lookForRemains(ctx, s)
	s.verdict(fault)
	if fault != nil {
		failures = append(failures, "what is left")
	}
	if len(failures) > 0 {
		return fmt.Errorf("not as expected: %s", strings.Join(failures, "; "))
	}
	return nil
}

// play runs all scenes and returns the titles of failed ones.
func play(ctx context.Context, s *screen, srv *server) ([]string, error) {
	c, err := dial(ctx, srv.address, srv.token)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var failures []string
	run := func(scenes []scene) error {
		for _, sc := range scenes {
			fault, err := perform(ctx, s, c, sc)
			if err != nil {
				return fmt.Errorf("%s: %w", sc.title, err)
			}
			if fault != nil {
				failures = append(failures, sc.title)
			}
		}
		return nil
	}
	s.heading("programs")
	if err := run(programs()); err != nil {
		return failures, err
	}
	fault := together(ctx, s, c)
	s.verdict(fault)
	if fault != nil {
		failures = append(failures, "many at once")
	}
	s.heading("programs that mean harm")
	return failures, run(attacks(srv.address))
}

// perform runs one scene. fault is about the program, err about the connection.
func perform(ctx context.Context, s *screen, c *client, sc scene) (fault, err error) {
	s.scene(sc)
	l := lines{s: s, partial: map[string]string{}}
	show := l.add
	if sc.quiet {
		show = nil
	}
	o, err := c.execute(ctx, sc.message(), show)
	l.end()
	if err != nil {
		return nil, err
	}
	if o.Error == "LANGUAGE_NOT_SUPPORTED" && sc.needs != "" && !installed(sc.needs) {
		s.printf("  → not shown: this machine has no %s (%s)\n", sc.needs, printable(o.Reason))
		return nil, nil
	}
	fault = sc.check(o)
	s.outcome(o, fault)
	return fault, nil
}

func (sc scene) message() message {
	m := message{Language: sc.language, Code: sc.code, Limits: &sc.limits}
	if *m.Limits == (limits{}) {
		m.Limits = &defaultLimits
	}
	if sc.stdin != "" {
		m.Stdin = &sc.stdin
	}
	return m
}

// installed reports whether an interpreter is in a directory that sandboxes have.
func installed(name string) bool {
	return slices.ContainsFunc([]string{"/usr/local/bin", "/usr/bin", "/bin"}, func(dir string) bool {
		st, err := os.Stat(filepath.Join(dir, name))
		return err == nil && st.Mode().IsRegular()
	})
}

// together runs many programs at once on one connection.
func together(ctx context.Context, s *screen, c *client) error {
	code := fmt.Sprintf("sleep %.1f; echo program $0", crowdSleep.Seconds())
	s.scene(scene{title: fmt.Sprintf("%d at once, on the same connection", crowd), code: code})
	start := time.Now()
	errs := make([]error, crowd)
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			o, err := c.execute(ctx, scene{language: "shell", code: code}.message(), nil)
			errs[i] = err
			if err == nil {
				errs[i] = ended(0, "program")(o)
			}
		})
	}
	wg.Wait()
	s.printf("  → all ended after %.2f s; one after the other they would have slept %.1f s\n",
		time.Since(start).Seconds(), (crowd * crowdSleep).Seconds())
	return errors.Join(errs...)
}

// server is the running "sandbar serve".
type server struct {
	binary  string
	dir     string // has its state and runtime directories
	cmd     *exec.Cmd
	address string
	token   string
	log     *bytes.Buffer // complete when the process has ended
	ended   chan struct{}
	err     error // of Wait, once ended is closed
}

// start starts a server and waits until it answers.
func start(ctx context.Context, binary string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbar-demo-")
	if err != nil {
		return nil, err
	}
	srv := &server{binary: binary, dir: dir, address: address, token: rand.Text(), log: &bytes.Buffer{}, ended: make(chan struct{})}
	srv.cmd = exec.Command(binary, "serve", "--listen", address)
	srv.cmd.Env = append(srv.environment(), "SANDBAR_TOKEN="+srv.token)
	srv.cmd.Stdout, srv.cmd.Stderr = srv.log, srv.log
	// Ctrl-C must reach only the demonstration, which then stops the daemon.
	detach(srv.cmd)
	if err := srv.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		srv.err = srv.cmd.Wait()
		close(srv.ended)
	}()
	if err := srv.ready(ctx); err != nil {
		defer srv.remove()
		return nil, fmt.Errorf("the server did not start: %w\n%s\n\"%s doctor\" reports what this machine lacks", err, srv.lastWords(), binary)
	}
	return srv, nil
}

// environment returns this process's environment without Sandbar's variables, and with an empty
// configuration file.
func (srv *server) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "SANDBAR_") })
	return append(env, "SANDBAR_CONFIG="+os.DevNull,
		"SANDBAR_RUNTIME_DIR="+filepath.Join(srv.dir, "run"), "SANDBAR_STATE_DIR="+filepath.Join(srv.dir, "state"))
}

// freeAddress returns a loopback address with a port that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// ready waits for a response to GET /health.
func (srv *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+srv.address+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("GET /health: %s", resp.Status)
		}
		select {
		case <-srv.ended:
			return fmt.Errorf("it ended: %v", srv.err)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop sends SIGTERM to the server and waits for its exit.
func (srv *server) stop() error {
	if err := srv.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-srv.ended:
		return srv.err
	case <-time.After(20 * time.Second):
		srv.kill()
		return errors.New("the server did not end within 20 seconds of SIGTERM")
	}
}

// kill kills the server.
func (srv *server) kill() {
	srv.cmd.Process.Kill()
	<-srv.ended
}

// lastWords returns the server's log, after its exit.
func (srv *server) lastWords() string {
	srv.kill()
	return strings.TrimSpace(srv.log.String())
}

// remove kills the server and removes its directory.
func (srv *server) remove() {
	srv.kill()
	os.RemoveAll(srv.dir)
}

// lookForRemains searches for leftovers of the server: processes, files in its runtime directory,
// and findings of gc.
func (srv *server) lookForRemains(ctx context.Context, s *screen) error {
	processes := orphans(5 * time.Second)
	files, err := srv.filesLeft()
	found, gcErr := srv.collect(ctx)
	s.printf("  left behind: %d processes, %d files; sandbar gc finds %d things of this server\n", len(processes), len(files), len(found))
	return errors.Join(err, gcErr,
		expect(len(processes) == 0, "no process, not %s", strings.Join(processes, ", ")),
		expect(len(files) == 0, "no file, not %s", strings.Join(files, ", ")),
		expect(len(found) == 0, "gc to find nothing, not %s", strings.Join(found, ", ")))
}

func (srv *server) filesLeft() ([]string, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(srv.dir, "run"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server created none
		}
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// collect returns the leftovers that gc finds, only those with this server's pid in their name.
func (srv *server) collect(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, srv.binary, "gc", "--dry-run", "--json")
	cmd.Env = srv.environment()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s gc: %w", srv.binary, err)
	}
	var report struct {
		Leftovers []struct{ Driver, Kind, Name string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("%s gc: %w", srv.binary, err)
	}
	var found []string
	for _, l := range report.Leftovers {
		if strings.Contains(l.Name, fmt.Sprintf("%d-", srv.cmd.Process.Pid)) || strings.HasPrefix(l.Name, srv.dir) {
			found = append(found, l.Driver+" "+l.Kind+" "+l.Name)
		}
	}
	return found, nil
}
