package drivertest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// Each row is a driver with one fault and a case that must find it. The same case passes without
// the fault.
func TestFaultsAreFound(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux)
	for _, tc := range []struct {
		fault   string
		change  func(*liar)
		name    string // of the case
		finding string // a part of the failure's text
	}{
		{"files claimed to be private", claim(func(c *driver.Caps) { c.PrivateFiles = true }), "escape/15-host-file", "secret of the bait"},
		{"files claimed to be private", claim(func(c *driver.Caps) { c.PrivateFiles = true }), "escape/01-link-read", "bait's secret"},
		{"network claimed to be private", claim(func(c *driver.Caps) { c.PrivateNetwork = true }), "dial/hosts-port", "no error"},
		{"processes claimed to be private", claim(func(c *driver.Caps) { c.PrivateProcesses = true }), "escape/25-signal-host", "was killed"},
		{"a boundary claimed", claim(func(c *driver.Caps) { c.Boundary = driver.BoundaryNamespaces }), "escape/65-name", "the host's name"},
		{"private without a boundary", claim(func(c *driver.Caps) { c.PrivateFiles = true }), "abilities/caps", "without a boundary"},
		{"another name", claim(func(c *driver.Caps) { c.Name = "other" }), "abilities/caps", "calls itself"},
		{"disk claimed to be held", claim(func(c *driver.Caps) { c.Enforced.Disk = sandbar.EnforcedMount }), "limits/disk", "under a limit of 4 MiB"},
		{"inodes claimed to be held", claim(func(c *driver.Caps) { c.Enforced.Inodes = sandbar.EnforcedMount }), "limits/inodes", "made 200 files"},
		{"processes claimed to be held", claim(func(c *driver.Caps) { c.Enforced.PIDs = sandbar.EnforcedCgroup2 }), "escape/20-fork-bomb", "processes under a limit"},
		{"a limit accepted and not held", func(l *liar) { l.degrade = true }, "limits/memory", "no error"},
		{"a Destroy that does nothing", func(l *liar) { l.undead = true }, "lifecycle/destroy-twice", "process: "},
		{"a Destroy that does nothing", func(l *liar) { l.undead = true }, "lifecycle/gone", "no error"},
		{"a goroutine left behind", func(l *liar) { l.created = func(string) { go func() { <-l.end }() } }, "lifecycle/create-empty", "goroutine"},
		{"a descriptor left behind", func(l *liar) {
			l.created = func(string) {
				f, _ := os.Open(os.DevNull)
				l.kept = append(l.kept, f)
			}
		}, "lifecycle/create-empty", "descriptor"},
		{"a file left behind", func(l *liar) {
			l.created = func(dir string) { os.WriteFile(filepath.Join(dir, "left"), nil, 0o600) }
		}, "lifecycle/create-empty", "file: "},
		{"a last byte lost", func(l *liar) { l.stdout = func(w io.Writer) io.Writer { return &tailless{w: w} } }, "streams/last-bytes", "of a short program"},
		{"output kept in memory", func(l *liar) { l.stdout = func(w io.Writer) io.Writer { return &hoard{w: w} } }, "streams/slow-reader", "output is not read"},
		{"bytes made into characters", func(l *liar) { l.stdout = func(w io.Writer) io.Writer { return &mender{w} } }, "streams/every-byte", "bytes are changed"},
		{"errors of writers ignored", func(l *liar) { l.stdout = func(w io.Writer) io.Writer { return &deaf{w: w} } }, "streams/failing-reader", "after it had failed"},
		{"exit codes of seven bits", func(l *liar) { l.result = func(r *sandbar.Result) { r.ExitCode &= 0x7f } }, "endings/exit-codes", "want exit code 255"},
		{"signals told as codes", func(l *liar) {
			l.result = func(r *sandbar.Result) {
				if r.Outcome == sandbar.Signaled {
					r.Outcome, r.ExitCode = sandbar.Exited, 128+r.Signal
				}
			}
		}, "endings/sent-signals", "outcome exited"},
		{"a peak that is invented", func(l *liar) { l.result = func(r *sandbar.Result) { r.PeakMemory = 1 } }, "endings/numbers", "its peak at 1 bytes"},
		{"a late word about signals", func(l *liar) { l.signal = sandbar.Errorf(sandbar.Gone, "it has ended") }, "endings/signal-after-end", "after the end"},
		{"errors without a code", func(l *liar) { l.startErr = true }, "endings/start-errors", `has code "internal"`},
		{"the daemon's environment passed on", func(l *liar) { l.environ = true }, "endings/environment", "daemon's"},
		{"an abort that commits", func(l *liar) { l.fs = func(f sandbar.FS) sandbar.FS { return committed{f} } }, "files/abort", "after Abort"},
		{"a KillTree of the group only", func(l *liar) { l.killTree = func(p driver.Process) error { return p.Signal(9) } }, "trees/escaped", "of the tree live"},
		{"a KillTree for the living only", func(l *liar) {
			l.killTree = func(p driver.Process) error { return p.Signal(9) }
		}, "trees/left-alone", "of the tree live"},
		{"a KillTree of everything", func(l *liar) {
			l.killTree = func(driver.Process) error { return l.boxes[len(l.boxes)-1].Destroy(context.Background()) }
		}, "trees/two-trees", "after the end of another tree"},
		{"a KillTree that fails", func(l *liar) { l.killTree = func(driver.Process) error { return io.ErrUnexpectedEOF } }, "trees/obedient", "KillTree: "},
		{"arguments lost in a warm start", func(l *liar) { l.evaluate = func(e *driver.Evaluation) { e.Args = nil } }, "warm/same-forked-python", "cold (-) and warm (+) differ"},
		{"an interpreter that runs two programs", func(l *liar) { l.twice = true }, "warm/once-forked-python", "a second Eval: no error"},
		{"a variable of the start ignored", func(l *liar) { l.evaluate = func(e *driver.Evaluation) { delete(e.Env, "PYTHONHASHSEED") } }, "warm/refuses-forked-python", "no error"},
		{"a sandbox that ended and runs a program", func(l *liar) { l.undead = true }, "warm/gone-forked-python", "Eval after Destroy: no error"},
		{"files that cannot be shut in", func(l *liar) { l.fs = func(f sandbar.FS) sandbar.FS { return inPlace{f} } }, "files/atomic", "Stat before Commit"},
	} {
		t.Run(tc.fault+" "+strings.ReplaceAll(tc.name, "/", "-"), func(t *testing.T) {
			if failure := playOne(t, tc.name, waitTimeout, func(*liar) {}); failure != "" {
				t.Fatalf("without the fault the case fails:\n%s", failure)
			}
			// Waits for events that never come may be short; waits for events that are slow on a
			// busy host may not.
			failure := playOne(t, tc.name, 500*time.Millisecond, tc.change)
			if !strings.Contains(failure, tc.finding) {
				failure = playOne(t, tc.name, waitTimeout, tc.change)
			}
			if !strings.Contains(failure, tc.finding) {
				t.Errorf("the case says %q; want something with %q", failure, tc.finding)
			}
		})
	}
}

// playOne runs one case with a faulty local driver and returns the failure.
func playOne(t *testing.T, name string, waitTimeout time.Duration, change func(*liar)) string {
	t.Helper()
	l := &liar{end: make(chan struct{})}
	defer l.cleanUp()
	// The suite probes the driver before the fault begins.
	s := newSuite(t, Harness{Name: local.Name, New: func(h driver.Host) (driver.Driver, error) {
		d, err := local.New(h)
		if err != nil {
			return nil, err
		}
		return &lyingDriver{d, l, h.RuntimeDir}, nil
	}})
	change(l)
	s.waitTimeout = waitTimeout
	groupName, caseName, _ := strings.Cut(name, "/")
	for _, g := range groups() {
		for _, c := range g.cases {
			if g.name == groupName && c.name == caseName {
				d, done := s.newDriver(t)
				defer done()
				defer l.cleanUp()
				return s.play(t.Context(), d, name, c).failed()
			}
		}
	}
	t.Fatalf("there is no case %s", name)
	return ""
}

// liar describes the faults of a driver.
type liar struct {
	caps     func(*driver.Caps)
	degrade  bool         // accept every limit
	created  func(string) // called with the runtime directory at each Create
	undead   bool         // Destroy does nothing
	stdout   func(io.Writer) io.Writer
	result   func(*sandbar.Result)
	signal   error // of every Signal after the end
	killTree func(driver.Process) error
	startErr bool // Start loses error codes
	environ  bool // Start passes the daemon's environment to programs
	fs       func(sandbar.FS) sandbar.FS
	evaluate func(*driver.Evaluation)
	twice    bool // an interpreter runs a second program

	end chan struct{}

	mu    sync.Mutex
	kept  []*os.File
	boxes []driver.Sandbox
	ended bool
}

func claim(f func(*driver.Caps)) func(*liar) {
	return func(l *liar) { l.caps, l.degrade = f, true }
}

func (l *liar) cleanUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.boxes {
		b.Destroy(context.Background())
	}
	for _, f := range l.kept {
		f.Close()
	}
	l.boxes, l.kept = nil, nil
	if !l.ended {
		l.ended = true
		close(l.end)
	}
}

type lyingDriver struct {
	driver.Driver
	l   *liar
	dir string
}

func (d *lyingDriver) Unwrap() any { return d.Driver }

func (d *lyingDriver) Caps() driver.Caps {
	c := d.Driver.Caps()
	if d.l.caps != nil {
		d.l.caps(&c)
	}
	return c
}

func (d *lyingDriver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	s.AllowDegraded = s.AllowDegraded || d.l.degrade
	b, err := d.Driver.Create(ctx, id, s)
	if err != nil {
		return nil, err
	}
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	d.l.boxes = append(d.l.boxes, b)
	if d.l.created != nil {
		d.l.created(d.dir)
	}
	return &lyingBox{b, d.l}, nil
}

// Prepare makes a template with faulty forks.
func (d *lyingDriver) Prepare(ctx context.Context, t driver.TemplateSpec) (driver.Template, error) {
	made, err := prestart.Prepare(d, t)
	if err != nil {
		return nil, err
	}
	return lyingTemplate{made, d.l, t}, nil
}

type lyingTemplate struct {
	driver.Template
	l *liar
	s driver.TemplateSpec
}

func (t lyingTemplate) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	b, err := t.Template.Fork(ctx, id)
	if err != nil {
		return nil, err
	}
	return &lyingFork{b, t, false}, nil
}

type lyingFork struct {
	driver.Sandbox
	t    lyingTemplate
	used bool
}

func (f *lyingFork) Unwrap() any { return f.Sandbox }

func (f *lyingFork) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	if f.t.l.evaluate != nil {
		f.t.l.evaluate(&e)
	}
	if f.used && f.t.l.twice {
		return f.Start(ctx, sandbar.Cmd{Args: append(f.t.s.Argv, e.Path), Env: e.Env}, std)
	}
	f.used = true
	v, _ := driver.As[driver.Evaluator](f.Sandbox)
	p, err := v.Eval(ctx, e, std)
	if f.t.l.undead && sandbar.CodeOf(err) == sandbar.Gone {
		return f.Start(ctx, sandbar.Cmd{Args: append(f.t.s.Argv, e.Path), Env: e.Env}, std)
	}
	return p, err
}

type lyingBox struct {
	driver.Sandbox
	l *liar
}

func (b *lyingBox) Unwrap() any { return b.Sandbox }

func (b *lyingBox) FS() sandbar.FS {
	if b.l.fs != nil {
		return b.l.fs(b.Sandbox.FS())
	}
	return b.Sandbox.FS()
}

func (b *lyingBox) Destroy(ctx context.Context) error {
	if b.l.undead {
		return nil
	}
	return b.Sandbox.Destroy(ctx)
}

func (b *lyingBox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	var flush io.Closer
	if b.l.stdout != nil && std.Stdout != nil {
		std.Stdout = b.l.stdout(std.Stdout)
		flush, _ = std.Stdout.(io.Closer)
	}
	if b.l.environ {
		env := map[string]string{}
		for _, kv := range os.Environ() {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		for k, v := range c.Env {
			env[k] = v
		}
		c.Env = env
	}
	p, err := b.Sandbox.Start(ctx, c, std)
	if err != nil {
		if b.l.startErr {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return &lyingProcess{p, b.l, flush}, nil
}

type lyingProcess struct {
	driver.Process
	l     *liar
	flush io.Closer
}

func (p *lyingProcess) Unwrap() any { return p.Process }

func (p *lyingProcess) KillTree() error {
	if p.l.killTree != nil {
		return p.l.killTree(p.Process)
	}
	return p.Process.KillTree()
}

func (p *lyingProcess) Wait() (sandbar.Result, error) {
	r, err := p.Process.Wait()
	if p.flush != nil {
		p.flush.Close()
	}
	if p.l.result != nil {
		p.l.result(&r)
	}
	return r, err
}

func (p *lyingProcess) Signal(sig int) error {
	if p.l.signal != nil {
		return p.l.signal
	}
	return p.Process.Signal(sig)
}

// tailless delays the last byte of each write until the next write.
type tailless struct {
	w    io.Writer
	held []byte
}

func (t *tailless) Write(b []byte) (int, error) {
	b = append(t.held, b...)
	t.held = []byte{b[len(b)-1]}
	_, err := t.w.Write(b[:len(b)-1])
	return len(b), err
}

// hoard buffers all output and writes it at the end.
type hoard struct {
	w   io.Writer
	buf bytes.Buffer
}

func (h *hoard) Write(b []byte) (int, error) { return h.buf.Write(b) }
func (h *hoard) Close() error                { _, err := io.Copy(h.w, &h.buf); return err }

// mender replaces invalid UTF-8.
type mender struct{ w io.Writer }

func (m *mender) Write(b []byte) (int, error) {
	_, err := io.WriteString(m.w, strings.ToValidUTF8(string(b), "\uFFFD"))
	return len(b), err
}

// deaf ignores write errors for some time.
type deaf struct {
	w io.Writer
	n int
}

func (d *deaf) Write(b []byte) (int, error) {
	if _, err := d.w.Write(b); err != nil {
		if d.n++; d.n > 3 {
			return 0, err
		}
	}
	return len(b), nil
}

// committed is an FS whose Abort commits.
type committed struct{ sandbar.FS }

func (f committed) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	w, err := f.FS.Create(ctx, path, opt)
	return stubborn{w}, err
}

type stubborn struct{ sandbar.FileWriter }

func (w stubborn) Abort() { w.Commit() }

// inPlace is an FS that writes files directly at their paths.
type inPlace struct{ sandbar.FS }

func (f inPlace) Create(ctx context.Context, path string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	opt.Append = true
	return f.FS.Create(ctx, path, opt)
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		failure, reason string
		known           bool
		text            string
		bad             bool
	}{
		{"", "", false, "", false},
		{"broken", "", false, "broken", true},
		{"broken", "we know", true, "known failure: we know\nbroken", false},
		{"", "we know", true, "listed as a known failure (we know), but it passes: take it from the list", true},
	} {
		if text, bad := judge(tc.failure, tc.reason, tc.known); text != tc.text || bad != tc.bad {
			t.Errorf("judge(%q, %q, %v) = %q, %v", tc.failure, tc.reason, tc.known, text, bad)
		}
	}
}

func TestCaseNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range groups() {
		if len(g.cases) == 0 {
			t.Errorf("group %s is empty", g.name)
		}
		for _, c := range g.cases {
			if name := g.name + "/" + c.name; seen[name] || strings.ContainsAny(c.name, "/ ") {
				t.Errorf("case %q is there twice, or is not a plain name", name)
			} else {
				seen[name] = true
			}
		}
	}
}

// The suite's writer detects concurrent calls.
func TestBufferNoticesConcurrentWrites(t *testing.T) {
	var b buffer
	b.writing.Lock() // as during a Write
	if _, err := b.Write([]byte("x")); err == nil || !b.twice {
		t.Error("a second Write at the same time is taken")
	}
	b.writing.Unlock()
	if _, err := b.Write([]byte("y")); err != nil || b.String() != "y" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestOwnTraces(t *testing.T) {
	s := &suite{ids: map[sandbar.ID]bool{}}
	id := sandbar.NewID()
	s.ids[id] = true
	for text, want := range map[string]bool{
		"/sys/fs/cgroup/sandbar/x." + string(id):          true,
		"/sys/fs/cgroup/" + string(id) + "/below":         true,
		"/sys/fs/cgroup/" + string(sandbar.NewID()):       false,
		"/run/dir/of/mine/lock":                           true,
		"sb_":                                             false,
		"/elsewhere sb_sb_ " + strings.Repeat("sb_", 100): false,
	} {
		if got := s.own(text, "/run/dir/of/mine"); got != want {
			t.Errorf("own(%q) = %v", text, got)
		}
	}
}

func TestKnownFailuresMustExist(t *testing.T) {
	var all []string
	for _, g := range groups() {
		for _, c := range g.cases {
			all = append(all, g.name+"/"+c.name)
		}
	}
	if unknown := unknownCases(Harness{KnownFailures: map[string]string{all[0]: "why", "no/such": "why", "streams": "why"}}); !slices.Equal(unknown, []string{"no/such", "streams"}) {
		t.Errorf("unknown: %q", unknown)
	}
}
