package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// vmDaemon starts a daemon whose driver is vm, in dir.
func vmDaemon(t *testing.T, dir string, env ...string) *daemon {
	t.Helper()
	options, err := testenv.VMOptions()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	return newDaemon(t, dir, append(env, "SANDBAR_DRIVER=vm", "SANDBAR_DRIVERS={vm: "+string(b)+"}", "SANDBAR_TEMPLATES=off")...)
}

// must makes a request that has to succeed. An answer of nil is not read.
func (d *daemon) must(t *testing.T, method, path string, body object, answer any) {
	t.Helper()
	if err := d.ask(within(t, 15*time.Minute), method, path, body, answer); err != nil {
		t.Fatalf("%v; the daemon said:\n%s", err, d.said())
	}
}

// shell runs a command in a sandbox and returns its output.
func (d *daemon) shell(t *testing.T, id, command string) string {
	t.Helper()
	var r struct{ Stdout string }
	d.must(t, "POST", "/sandboxes/"+id+"/executor/run", object{"cmd": command}, &r)
	return r.Stdout
}

// sandboxes lists the sandboxes of a daemon with their states.
func (d *daemon) sandboxes(t *testing.T) map[string]string {
	t.Helper()
	var l struct{ Sandboxes []struct{ ID, State string } }
	d.must(t, "GET", "/sandboxes", nil, &l)
	all := map[string]string{}
	for _, s := range l.Sandboxes {
		all[s.ID] = s.State
	}
	return all
}

// counting is a program that counts in its memory.
const counting = `import os, time
n = 0
while True:
    n += 1
    with open("/tmp/new", "w") as f: f.write(str(n))
    os.rename("/tmp/new", "/tmp/count")
    time.sleep(0.02)`

// newCounter creates a sandbox in which a program counts.
func (d *daemon) newCounter(t *testing.T) string {
	t.Helper()
	var s struct{ ID string }
	for end := time.Now().Add(15 * time.Minute); ; { // the first one waits for the boot of its snapshot
		err := d.ask(within(t, 15*time.Minute), "POST", "/sandboxes", object{"limits": object{"memory": 256 << 20}}, &s)
		if err == nil {
			break
		}
		if time.Now().After(end) || !strings.Contains(err.Error(), "504") {
			t.Fatalf("%v; the daemon said:\n%s", err, d.said())
		}
	}
	d.must(t, "POST", "/sandboxes/"+s.ID+"/executor/start_process", object{"cmd": "exec python3 -c '" + counting + "'"}, nil)
	d.counter(t, s.ID, 0)
	return s.ID
}

// counter waits until the counter is beyond from, and returns it.
func (d *daemon) counter(t *testing.T, id string, from int) (n int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		fmt.Sscan(d.shell(t, id, "cat /tmp/count 2>/dev/null || true"), &n)
		if n > from {
			return n
		}
		if time.Now().After(end) {
			t.Fatalf("the counter is at %d, want more than %d", n, from)
		}
	}
}

// A sandbox is paused, its daemon killed, and the next daemon resumes it: the program goes on with
// what it had in memory. 3 times, or 100 in "make test-all".
func TestPausedAcrossKills(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	n := 3
	if testenv.Long() {
		n = 100
	}
	dir := t.TempDir()
	d := vmDaemon(t, dir)
	id := d.newCounter(t)
	for range n {
		at := d.counter(t, id, 0)
		d.must(t, "POST", "/sandboxes/"+id+"/pause", object{}, nil)
		d.kill()
		d = vmDaemon(t, dir)
		if all := d.sandboxes(t); len(all) != 1 || all[id] != "paused" {
			t.Fatalf("%v", all)
		}
		err := d.ask(within(t, time.Minute), "POST", "/sandboxes/"+id+"/executor/run", object{"cmd": "true"}, nil)
		if err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), "sandbar resume") {
			t.Errorf("a command in a paused sandbox: %v", err)
		}
		d.must(t, "POST", "/sandboxes/"+id+"/resume", object{}, nil)
		d.counter(t, id, at)
	}
	d.must(t, "DELETE", "/sandboxes/"+id, nil, nil)
	d.endClean(t)
	if left := pausedFiles(t, dir); left != "" {
		t.Errorf("left on disk: %s", left)
	}
}

// pausable is a driver whose sandboxes can be paused.
type pausable struct {
	daemon func(t *testing.T, dir string, env ...string) *daemon
	// make creates a sandbox, in whose state verify finds at least the number 0.
	make func(d *daemon, t *testing.T) (id string)
	// verify checks that a running sandbox has its state since verify returned at, and changes it.
	verify func(d *daemon, t *testing.T, id string, at int) (next int)
}

// A daemon is killed at any moment of a pause, a resume and a fork. What was acknowledged is there
// after it, and nothing is half there.
func TestKilledWhilePausing(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	n := 4
	if testenv.Long() {
		n = 60
	}
	killWhilePausing(t, n, pausable{vmDaemon, (*daemon).newCounter, (*daemon).counter})
}

// The same with the files of sandboxes of the driver native: 8 times, or 200 in "make test-all".
func TestKilledWhileSavingFiles(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.Freezer)
	n := 8
	if testenv.Long() {
		n = 200
	}
	killWhilePausing(t, n, pausable{nativeDaemon, (*daemon).newFiles, (*daemon).files})
}

// nativeDaemon starts a daemon whose driver is native, in dir.
func nativeDaemon(t *testing.T, dir string, env ...string) *daemon {
	t.Helper()
	return newDaemon(t, dir, append(env, "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off")...)
}

// newFiles creates a sandbox with files, and a program that writes others all the time.
func (d *daemon) newFiles(t *testing.T) string {
	t.Helper()
	var s struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{"limits": object{"memory": 256 << 20}}, &s)
	d.shell(t, s.ID, "mkdir tree && cd tree && for i in $(seq 300); do echo $i >$i; done; head -c 5000000 /dev/urandom >big; sha256sum big >sum; echo 0 >/tmp/count")
	d.must(t, "POST", "/sandboxes/"+s.ID+"/executor/start_process", object{"cmd": "while :; do date +%N >/tmp/now; done"}, nil)
	return s.ID
}

// files checks that the files of newFiles are there and that the number in one of them is at, and
// writes the next number.
func (d *daemon) files(t *testing.T, id string, at int) (next int) {
	t.Helper()
	got := d.shell(t, id, "cat /tmp/count && cd tree && sha256sum -c sum && cat $(seq 300) | wc -l")
	if want := fmt.Sprintf("%d\nbig: OK\n300\n", at); got != want {
		t.Fatalf("the files say %q, want %q", got, want)
	}
	d.shell(t, id, fmt.Sprintf("echo %d >/tmp/count", at+1))
	return at + 1
}

// killWhilePausing kills a daemon n times.
func killWhilePausing(t *testing.T, n int, p pausable) {
	dir := t.TempDir()
	d := p.daemon(t, dir)
	id := p.make(d, t)
	at := p.verify(d, t, id, 0)
	path := func(action string) string { return "/sandboxes/" + id + "/" + action }
	// How long each call takes here, without a kill.
	took := map[string]time.Duration{}
	for _, action := range []string{"fork", "pause", "resume"} {
		began := time.Now()
		d.must(t, "POST", path(action), object{}, nil)
		took[action] = time.Since(began)
	}
	for other := range d.sandboxes(t) {
		if other != id {
			d.must(t, "DELETE", "/sandboxes/"+other, nil, nil)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range n {
		if id == "" {
			id = p.make(d, t)
			at = p.verify(d, t, id, 0)
		}
		action := []string{"pause", "resume", "fork", "resume"}[round%4]
		switch paused := d.sandboxes(t)[id] == "paused"; {
		case action == "resume" && !paused:
			d.must(t, "POST", path("pause"), object{}, nil)
		case action != "resume" && paused:
			d.must(t, "POST", path("resume"), object{}, nil)
			at = p.verify(d, t, id, at)
		}
		acknowledged := make(chan bool, 1)
		ctx := within(t, 15*time.Minute)
		go func() { acknowledged <- d.ask(ctx, "POST", path(action), object{}, nil) == nil }()
		time.Sleep(time.Duration(random.Float64() * 1.2 * float64(took[action])))
		d.kill()
		ok := <-acknowledged
		d = p.daemon(t, dir)
		all, files := d.sandboxes(t), pausedFiles(t, dir)
		state := all[id]
		t.Logf("%s, acknowledged: %v: then %q", action, ok, state)
		switch {
		case action == "pause" && ok && state != "paused":
			t.Errorf("a sandbox whose pause was acknowledged is lost: %v", all)
		case action == "resume" && ok && state != "":
			t.Errorf("a sandbox that was resumed is still paused: %v", all)
		case action == "fork" && len(all) > 0:
			t.Errorf("after a fork: %v", all)
		}
		want := ""
		if state == "paused" {
			want = id
		} else {
			id = ""
		}
		if len(all) > 1 || files != want {
			t.Errorf("sandboxes %v, on disk: %q, want %q", all, files, want)
		}
	}
	if id != "" {
		d.must(t, "POST", path("resume"), object{}, nil)
		p.verify(d, t, id, at)
		d.must(t, "DELETE", "/sandboxes/"+id, nil, nil)
	}
	d.endClean(t)
}

// pausedFiles returns the names in a daemon's directory of paused sandboxes, except the lock.
func pausedFiles(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "state", "paused"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() != "lock" {
			all = append(all, e.Name())
		}
	}
	return strings.Join(all, " ")
}
