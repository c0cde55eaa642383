package local

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// sandbox is a directory and the programs that were started in it. It implements driver.Sandbox,
// Filer, Dialer and Watcher.
type sandbox struct {
	d    *Driver
	id   sandbar.ID
	spec sandbar.Spec
	dir  string
	home string
	tmp  string
	dead chan struct{}

	// starting is held for reading while a program starts, and for writing to set closed:
	// afterwards no program can appear.
	starting sync.RWMutex
	closed   bool

	mu      sync.Mutex
	started int // number of programs ever started
	procs   map[*process]struct{}
	attempt *teardown // the current Destroy, or the last one
}

// teardown is one attempt to destroy a sandbox, shared by all callers.
type teardown struct {
	done chan struct{}
	err  error
}

func newSandbox(d *Driver, id sandbar.ID, s sandbar.Spec) *sandbox {
	dir := filepath.Join(d.instance.dir, string(id))
	return &sandbox{d: d, id: id, spec: s, dir: dir,
		home:  filepath.Join(dir, "home"),
		tmp:   filepath.Join(dir, "tmp"),
		dead:  make(chan struct{}),
		procs: map[*process]struct{}{},
	}
}

func (s *sandbox) makeDirs() error {
	for _, dir := range []string{s.dir, s.home, s.tmp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// discard removes the remains of a failed Create.
func (s *sandbox) discard() {
	removeAll(s.dir)
	s.d.forget(s.id)
}

// Dead is closed when Destroy begins; nothing else ends the sandbox.
func (s *sandbox) Dead() <-chan struct{} { return s.dead }

// FS returns the files: relative paths are in the sandbox's home, others are the host's.
func (s *sandbox) FS() sandbar.FS { return &files{sandbox: s} }

// gone is the error of all calls after Destroy.
func (s *sandbox) gone() error {
	return sandbar.Errorf(sandbar.Gone, "sandbox %s has been destroyed", s.id)
}

// ended reports whether Destroy has begun.
func (s *sandbox) ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// Start starts a program. Errors: those of driver.Sandbox; Invalid: the command is malformed;
// TooLarge: the arguments exceed the kernel's limit; Exhausted: the host allows no further process.
func (s *sandbox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	if s.closed {
		return nil, s.gone()
	}
	l, err := s.plan(c)
	if err != nil {
		return nil, err
	}
	p, err := launchProcess(s, l, std)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.procs[p] = struct{}{}
	s.mu.Unlock()
	go p.supervise()
	return p, nil
}

// plan computes the operating system's parameters of a Cmd. It starts nothing.
func (s *sandbox) plan(c sandbar.Cmd) (launch, error) {
	if err := checkCmd(c); err != nil {
		return launch{}, err
	}
	if err := driver.RefuseTerminal(Name, c); err != nil {
		return launch{}, err
	}
	env := environment(inheritedEnv(), s.base(), s.spec.Env, c.Env)
	dir := s.resolve(c.Dir)
	if err := checkDir(dir, c.Dir); err != nil {
		return launch{}, err
	}
	path, err := lookUp(c.Args[0], dir, env)
	if err != nil {
		return launch{}, err
	}
	tag := s.nextTag()
	return launch{path: path, args: c.Args, env: envList(env, s.tag()+" "+tag), tag: tag, dir: dir, files: s.d.files(s.spec.Limits)}, nil
}

// resolve converts a path of Cmd.Dir or FS to the host's.
func (s *sandbox) resolve(path string) string {
	switch rest, below := cutDefaultDir(path); {
	case below:
		return s.home + rest
	case filepath.IsAbs(path):
		return path
	default:
		return joinKeeping(s.home, path)
	}
}

// tag returns the value of the variable that all programs of the sandbox have.
func (s *sandbox) tag() string { return s.d.instance.name + "." + string(s.id) }

// nextTag returns the value for one program and its descendants.
func (s *sandbox) nextTag() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	return s.tag() + "." + strconv.Itoa(s.started)
}

func (s *sandbox) forgetProcess(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.procs, p)
}

// running returns the programs that have not exited, or whose output is still being delivered.
func (s *sandbox) running() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ps []*process
	for p := range s.procs {
		ps = append(ps, p)
	}
	return ps
}

// Destroy kills every program of the sandbox and removes its directory. If ctx ends first, the
// error is Canceled or Timeout and the work continues; a later call waits for it, or retries if it
// failed.
func (s *sandbox) Destroy(ctx context.Context) error {
	s.starting.Lock()
	if !s.closed {
		s.closed = true
		close(s.dead)
	}
	s.starting.Unlock()

	s.mu.Lock()
	t := s.attempt
	if t == nil || t.failed() {
		t = &teardown{done: make(chan struct{})}
		s.attempt = t
		go func() {
			t.err = s.tearDown()
			close(t.done)
		}()
	}
	s.mu.Unlock()

	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// failed reports whether the attempt has ended with an error.
func (t *teardown) failed() bool {
	select {
	case <-t.done:
		return t.err != nil
	default:
		return false
	}
}

// Timeouts of Destroy. It takes milliseconds, unless a process hangs in the kernel (such as on a
// dead network file system), which Destroy then reports.
const (
	killBound  = 10 * time.Second
	drainBound = 4 * driver.DrainWindow
)

func (s *sandbox) tearDown() error {
	s.mu.Lock()
	used := s.started > 0
	s.mu.Unlock()
	if used {
		ctx, cancel := context.WithTimeout(context.Background(), killBound)
		defer cancel()
		if err := s.killTree(ctx); err != nil {
			return err
		}
	}
	if err := removeAll(s.dir); err != nil {
		return fileError("remove", "the sandbox's directory", err)
	}
	s.d.forget(s.id)
	return nil
}

// killTree kills all programs and waits until they are reaped and their outputs are delivered. It
// does not wait for a caller's blocked writer.
func (s *sandbox) killTree(ctx context.Context) error {
	live := s.running()
	var children []*child
	for _, p := range live {
		p.child.kill()
		children = append(children, p.child)
	}
	if err := killTagged(ctx, s.tag(), children); err != nil {
		return err
	}
	drained := time.NewTimer(drainBound)
	defer drained.Stop()
	for _, p := range live {
		select {
		case <-p.reaped:
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.Internal, "process %d of sandbox %s does not die", p.child.pid(), s.id)
		}
		select {
		case <-p.done:
		case <-drained.C:
			drained.Reset(0) // the others get no further time
		}
	}
	return nil
}

// DialPort connects to a port on the host's loopback, which is also the sandbox's: the driver has
// no network isolation.
func (s *sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "port", Message: "port " + strconv.Itoa(port) + " is outside 1 to 65535"}
	}
	if s.ended() {
		return nil, s.gone()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return conn, nil
	}
	if cerr := contextError(ctx); cerr != nil {
		return nil, cerr
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, sandbar.Errorf(sandbar.Unavailable, "nothing listens on port %d in sandbox %s", port, s.id)
	}
	return nil, sandbar.Errorf(sandbar.Unavailable, "port %d in sandbox %s cannot be reached: %w", port, s.id, err)
}
