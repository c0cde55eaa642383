package native

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// onceTemplate prepares a template whose forks are in slots. It is closed at the test's end.
func onceTemplate(t *testing.T, d *Driver) driver.Template {
	t.Helper()
	s := pythonTemplate(d)
	s.Once = true
	return newTemplate(t, d, s)
}

// evalOnce runs a program in a fork, which must be in a slot.
func evalOnce(t *testing.T, tmpl driver.Template, code string) ended {
	t.Helper()
	e, err := tryEval(t.Context(), tmpl, code)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tryEval(ctx context.Context, tmpl driver.Template, code string) (ended, error) {
	f, err := tmpl.(*template).forkOnce(ctx, sandbar.NewID())
	if err != nil {
		return ended{}, err
	}
	var out, errOut bytes.Buffer
	p, err := f.Eval(ctx, driver.Evaluation{Path: "main.py", Code: code}, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		return ended{}, errors.Join(err, f.Destroy(context.WithoutCancel(ctx)))
	}
	r, err := p.Wait()
	return ended{r, out.String(), errOut.String()}, errors.Join(err, f.Destroy(context.WithoutCancel(ctx)))
}

// pythonShell is a Python program that becomes a shell.
func pythonShell(code string) string {
	return "import os\nos.execvp('sh', ['sh', '-c', " + strconv.Quote(code) + "])\n"
}

// A program finds the same in a warm interpreter of a slot as in a new interpreter.
func TestOnceForkEqualsCold(t *testing.T) {
	d := slotDriver(t)
	s := pythonTemplate(d)
	code := pythonShell(look)
	cold := once(t, d, s.Spec, driver.OneShot{Cmd: sandbar.Cmd{Args: append(s.Argv, s.File), Env: s.Env}, File: sandbar.DefaultDir + "/main.py", Code: code})
	warm := evalOnce(t, onceTemplate(t, d), code)
	if diff := cmp.Diff(strings.Split(varying(cold.out+cold.err), "\n"), strings.Split(varying(warm.out+warm.err), "\n")); diff != "" || len(cold.out) < 4000 {
		t.Errorf("cold (-) and warm (+) differ:\n%s\n%d bytes", diff, len(cold.out))
	}
}

// A slot is used again for copies of its template, and for nothing else.
func TestOnceForkSlots(t *testing.T) {
	d := slotDriver(t)
	one, other := onceTemplate(t, d), onceTemplate(t, d)
	var used []*slotted
	for range 5 {
		if e := evalOnce(t, one, "print(1)"); e.out != "1\n" {
			t.Fatalf("%+v: %s%s", e.Result, e.out, e.err)
		}
		if len(d.slots.idle) != 1 {
			t.Fatalf("%d idle slots", len(d.slots.idle))
		}
		used = append(used, d.slots.idle[0])
	}
	if used[0] != used[4] {
		t.Error("the slot was not used again")
	}
	evalOnce(t, other, "")
	once(t, d, one.(*template).spec, shellOnce("true"))
	if len(d.slots.idle) != 3 {
		t.Errorf("%d idle slots for two templates and a shell", len(d.slots.idle))
	}
	there := newFork(t, one).(*onceFork)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if len(d.slots.idle) != 2 {
		t.Errorf("%d idle slots after the end of a template", len(d.slots.idle))
	}
	if out := eval(t, there, "print('alive')"); out != "alive\n" {
		t.Errorf("a fork without its template says %q", out)
	}
	if err := there.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(d.slots.idle) != 2 {
		t.Errorf("%d idle slots: that of a template that has ended is kept", len(d.slots.idle))
	}
}

// A killed slot, or first process, loses its own copy only.
func TestOnceForkKilled(t *testing.T) {
	d := slotDriver(t)
	tmpl := onceTemplate(t, d)
	killEach(t, func() (*single, driver.Single, driver.Process) {
		f := newFork(t, tmpl).(*onceFork)
		p, err := f.Eval(t.Context(), driver.Evaluation{Path: "main.py", Code: "import time; time.sleep(1000)"}, driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		return f.single, f, p
	}, func() ended { return evalOnce(t, tmpl, "print('next')") })
}

// A fork in a slot refuses what it cannot do, and the limits hold.
func TestOnceForkLimits(t *testing.T) {
	d := slotDriver(t)
	s := pythonTemplate(d)
	s.Once = true
	s.Spec.Limits.PIDs, s.Spec.Limits.Memory = 8, 128<<20
	tmpl := newTemplate(t, d, s)
	f := newFork(t, tmpl).(*onceFork)
	large := driver.Evaluation{Path: "main.py", Code: strings.Repeat("#", maxOnceCode+1)}
	if _, err := f.Eval(t.Context(), large, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("a large program: %v", err)
	}
	if e := evalOnce(t, tmpl, strings.Repeat("#", maxOnceCode-9)+"\nprint(1)"); e.out != "1\n" {
		t.Errorf("a program of the largest size: %+v", e)
	}
	if e := evalOnce(t, tmpl, countProcesses+"os.killpg(0, 9)\n"); e.out != "8\n" {
		t.Errorf("with a limit of 8 processes a program has %q: %+v %s", e.out, e.Result, e.err)
	}
	if e := evalOnce(t, tmpl, "b = bytearray(300 << 20)"); e.Outcome != sandbar.OutOfMemory {
		t.Errorf("more memory than the limit: %+v", e)
	}
	few := s
	few.Spec.Limits.PIDs = copyTasks - 1
	if _, err := newTemplate(t, d, few).(*template).forkOnce(t.Context(), sandbar.NewID()); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("a slot for %d processes: %v", copyTasks-1, err)
	}
}

// A copy enters all namespaces or none: if the daemon has no room for their descriptors, there is
// no fork.
func TestOnceForkWithoutDescriptors(t *testing.T) {
	d := slotDriver(t)
	tmpl := onceTemplate(t, d).(*template)
	evalOnce(t, tmpl, "")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	few := unix.Rlimit{Cur: uint64(descriptors(t)) + 100, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var all []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		all = append(all, fd)
	}
	const room = 5 // less than there are namespaces
	for _, fd := range all[:room] {
		unix.Close(fd)
	}
	_, _, err := d.takeSlot(t.Context(), tmpl.spec, tmpl)
	for _, fd := range all[room:] {
		unix.Close(fd)
	}
	if sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Errorf("with room for %d descriptors: %v", room, err)
	}
}
