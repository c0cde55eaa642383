package doctor

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a driver whose programs are decided by a function.
type fake struct {
	caps   driver.Caps
	run    func(args []string) (stdout string, exitCode int)
	create error
	closed int
	live   int
}

func (f *fake) Caps() driver.Caps { return f.caps }
func (f *fake) Close() error      { f.closed++; return nil }

func (f *fake) Create(context.Context, sandbar.ID, sandbar.Spec) (driver.Sandbox, error) {
	if f.create != nil {
		return nil, f.create
	}
	f.live++
	return &fakeSandbox{driver: f}, nil
}

type fakeSandbox struct {
	driver.Sandbox // nil: the doctor uses no other method
	driver         *fake
	destroyed      bool
}

func (s *fakeSandbox) Start(_ context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	out, code := s.driver.run(c.Args)
	p := &fakeProcess{code: code, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if std.Stdout != nil {
			io.WriteString(std.Stdout, out)
		}
	}()
	return p, nil
}

func (s *fakeSandbox) Destroy(context.Context) error {
	if !s.destroyed {
		s.destroyed = true
		s.driver.live--
	}
	return nil
}

// fakeProcess has ended as soon as its output is written.
type fakeProcess struct {
	driver.Process // nil, as above
	code           int
	done           chan struct{}
}

func (p *fakeProcess) Wait() (sandbar.Result, error) {
	<-p.done
	return sandbar.Result{Outcome: sandbar.Exited, ExitCode: p.code}, nil
}

func (p *fakeProcess) Signal(int) error { return nil }

func factory(name string, d *fake, err error) driver.Factory {
	return driver.Factory{Name: name, Summary: name + " it is", New: func(driver.Host) (driver.Driver, error) {
		if err != nil {
			return nil, err
		}
		d.caps.Name = name
		return d, nil
	}}
}

// pythonOnly is a sandbox with a shell and Python.
func pythonOnly(args []string) (string, int) {
	switch {
	case args[0] == "true":
		return "", 0
	case args[0] == "sh" && slices.Contains([]string{"python3", "sh"}, args[len(args)-1]):
		return "/usr/bin/" + args[len(args)-1] + "\n", 0
	}
	return "", 127
}

func examine(t *testing.T, chosen string, factories ...driver.Factory) Report {
	t.Helper()
	languages, err := lang.New(lang.Default()...)
	if err != nil {
		t.Fatal(err)
	}
	r := Examine(t.Context(), Input{Version: "v1", Chosen: chosen, Factories: factories, Languages: languages,
		Host: func(string) driver.Host { return driver.Host{} }})
	if b, err := json.Marshal(r); err != nil || strings.Contains(string(b), `"notes":null`) || strings.Contains(string(b), `"languages":null`) {
		t.Errorf("as JSON: %s, %v", b, err)
	}
	return r
}

func TestWorkingDriver(t *testing.T) {
	strong := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryNamespaces, Notes: []string{"a note"},
		Enforced: sandbar.Enforcements{Memory: sandbar.EnforcedCgroup2}}}
	weak := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryNone}}
	r := examine(t, "", factory("weak", weak, nil), factory("strong", strong, nil))
	if !r.OK || r.Driver != "strong" || !r.Sandbox.OK || len(r.Drivers) != 2 {
		t.Errorf("report %+v", r)
	}
	if e := r.Drivers[1].Enforced; e == nil || e.Memory != sandbar.EnforcedCgroup2 || r.Drivers[1].Notes[0] != "a note" {
		t.Errorf("driver %+v", r.Drivers[1])
	}
	for _, l := range r.Languages {
		if want := l.Name == "python" || l.Name == "shell"; l.Available != want || want && l.Path != "/usr/bin/"+l.Interpreter {
			t.Errorf("language %+v", l)
		}
	}
	if strong.live != 0 || strong.closed != 1 || weak.closed != 1 {
		t.Errorf("left: %d sandboxes; closed %d and %d times", strong.live, strong.closed, weak.closed)
	}
	if r := examine(t, "weak", factory("strong", strong, nil), factory("weak", weak, nil)); r.Driver != "weak" || !r.OK {
		t.Errorf("chosen: %+v", r)
	}
}

// Without a trial the doctor creates no sandbox, and closes all drivers.
func TestNoTrial(t *testing.T) {
	d := &fake{create: sandbar.Errorf(sandbar.Internal, "a sandbox was created"), caps: driver.Caps{Boundary: driver.BoundaryNamespaces}}
	languages, err := lang.New(lang.Default()...)
	if err != nil {
		t.Fatal(err)
	}
	r := Examine(t.Context(), Input{Factories: []driver.Factory{factory("strong", d, nil), factory("none", nil, sandbar.Errorf(sandbar.Unsupported, "it is missing"))},
		Languages: languages, Host: func(string) driver.Host { return driver.Host{} }, NoTrial: true})
	if !r.OK || r.Driver != "strong" || r.Sandbox != (Trial{}) || d.closed != 1 || len(r.Languages) != len(languages.Names()) || r.Drivers[1].Problem != "it is missing" {
		t.Errorf("%+v, closed %d times", r, d.closed)
	}
}

// The doctor opens a driver with all its options and keeps the given ones.
func TestAlternatives(t *testing.T) {
	strong := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryContainer}}
	f := factory("strong", strong, nil)
	f.Alternatives = driver.Alternatives{Option: "runtime", Values: []string{"good", "bad"}}
	f.New = func(h driver.Host) (driver.Driver, error) {
		if h.Options["paths"] != "/opt" {
			t.Errorf("options %v", h.Options)
		}
		if h.Options["runtime"] == "bad" {
			return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "it is bad", Fix: "take the good one"}
		}
		strong.caps.Notes = []string{"made with " + h.Options["runtime"]}
		return strong, nil
	}
	options := map[string]string{"paths": "/opt"}
	r := Examine(t.Context(), Input{Factories: []driver.Factory{f}, Languages: &lang.Catalogue{}, Host: func(string) driver.Host { return driver.Host{Options: options} }})
	if !r.OK || r.Drivers[0].Notes[0] != "made with " || len(options) != 1 {
		t.Errorf("the driver itself: %+v; options %v", r.Drivers[0], options)
	}
	a := r.Drivers[0].Alternatives
	if len(a) != 2 || a[0].Option != "runtime" || a[0].Value != "good" || !a[0].Available || a[0].Boundary != driver.BoundaryContainer || a[0].Notes[0] != "made with good" {
		t.Fatalf("%+v", a)
	}
	if a[1].Available || a[1].Problem != "it is bad" || a[1].Fix != "take the good one" {
		t.Errorf("%+v", a[1])
	}
	if strong.closed != 2 {
		t.Errorf("closed %d times", strong.closed)
	}
}

func TestDriverThatIsMissing(t *testing.T) {
	missing := &sandbar.Error{Code: sandbar.Unsupported, Message: "no user namespaces", Fix: "sysctl it"}
	weak := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryNone}}
	r := examine(t, "", factory("strong", nil, missing), factory("weak", weak, nil))
	if r.OK || r.Driver != "" || r.Drivers[0].Available || r.Drivers[0].Problem != "no user namespaces" || r.Drivers[0].Fix != "sysctl it" {
		t.Errorf("report %+v", r)
	}
	if r.Sandbox.Problem != "driver strong does not work here: no user namespaces" || r.Sandbox.Fix != "sysctl it" {
		t.Errorf("trial %+v", r.Sandbox)
	}
	if weak.closed != 1 {
		t.Error("the driver without a boundary was chosen, or left open")
	}
	if len(r.Languages) != 4 || r.Languages[0].Available {
		t.Errorf("languages %+v", r.Languages)
	}
}

// A driver that creates objects outside of the host is opened only if it is named.
func TestOnlyNamed(t *testing.T) {
	far := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryContainer}}
	f := factory("far", far, nil)
	f.OnlyNamed = true
	r := examine(t, "", f)
	if d := r.Drivers[0]; r.OK || far.closed != 0 || d.Available || !d.Unexamined || d.Fix != "sandbar doctor --driver far" || !strings.Contains(r.Sandbox.Problem, "no driver") {
		t.Errorf("%+v; closed %d times", r, far.closed)
	}
	if r := examine(t, "far", f); !r.OK || r.Driver != "far" || r.Drivers[0].Unexamined || far.closed != 1 {
		t.Errorf("named: %+v; closed %d times", r, far.closed)
	}
}

func TestNoDriverIsolates(t *testing.T) {
	weak := &fake{run: pythonOnly, caps: driver.Caps{Boundary: driver.BoundaryNone}}
	if r := examine(t, "", factory("weak", weak, nil)); r.OK || !strings.Contains(r.Sandbox.Problem, "no driver of this build isolates") {
		t.Errorf("trial %+v", r.Sandbox)
	}
}

func TestSandboxThatFails(t *testing.T) {
	for name, d := range map[string]*fake{
		"cannot be made": {create: &sandbar.Error{Code: sandbar.Unsupported, Message: "mount refused", Fix: "do this"}, run: pythonOnly},
		"runs nothing":   {run: func([]string) (string, int) { return "", 1 }},
	} {
		d.caps.Boundary = driver.BoundaryNamespaces
		r := examine(t, "", factory("strong", d, nil))
		if r.OK || r.Driver != "strong" || r.Sandbox.OK || r.Sandbox.Problem == "" {
			t.Errorf("%s: %+v", name, r.Sandbox)
		}
		if d.create != nil && (r.Sandbox.Problem != "mount refused" || r.Sandbox.Fix != "do this") {
			t.Errorf("%s: %+v", name, r.Sandbox)
		}
		if d.live != 0 || d.closed != 1 {
			t.Errorf("%s: %d sandboxes left, closed %d times", name, d.live, d.closed)
		}
	}
}
