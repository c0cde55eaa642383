package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// startIn starts a daemon from a shell script that prepares its mounts, in a new mount namespace,
// and waits until it answers.
func startIn(t *testing.T, prepare string, env ...string) *daemon {
	t.Helper()
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		attr.Unshareflags = syscall.CLONE_NEWNS
	}
	return startAs(t, attr, prepare, env...)
}

// startAs is startIn for a process with these attributes.
func startAs(t *testing.T, attr *syscall.SysProcAttr, prepare string, env ...string) *daemon {
	t.Helper()
	d := &daemon{addr: testenv.FreeAddress(t), dir: t.TempDir()}
	var err error
	if d.logs, err = os.CreateTemp(t.TempDir(), "log-"); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command("/bin/sh", "-ec", prepare+"\nexec \"$@\"", "sh", testenv.Build(t, "cmd/sandbar"), "serve", "--listen", d.addr)
	d.cmd.Dir = d.dir
	d.cmd.Env = append(append(environ(), "SANDBAR_TOKEN="+token, "SANDBAR_ALLOW_DEGRADED=true",
		"SANDBAR_STATE_DIR="+filepath.Join(d.dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "run")), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.logs, d.logs
	d.cmd.SysProcAttr = attr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	return d
}

// outcome is how an execution ended.
type outcome struct {
	Type, Code, Message string
	Exit                *int `json:"exit_code"`
}

// run executes a program on a new connection and waits for its last message. An error is of the
// connection.
func (d *daemon) run(ctx context.Context, language, code string, timeout time.Duration) (outcome, error) {
	var o outcome
	ws, err := d.connect(ctx)
	if err != nil {
		return o, err
	}
	defer ws.CloseNow()
	m, err := json.Marshal(object{"v": 1, "type": "execute", "id": "x", "ts": "2026-01-01T00:00:00.000Z", "language": language, "code": code,
		"limits": object{"timeout_ms": timeout.Milliseconds(), "memory_mb": 64}})
	if err != nil {
		return o, err
	}
	if err := ws.Write(ctx, 1, m); err != nil {
		return o, err
	}
	for o.Type != "result" && o.Type != "error" {
		_, b, err := ws.Read(ctx)
		if err != nil {
			return o, err
		}
		o = outcome{}
		if err := json.Unmarshal(b, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// works fails the test unless the daemon runs programs within a bounded time.
func (d *daemon) works(t *testing.T) {
	t.Helper()
	ctx := within(t, time.Minute)
	waitUntil(t, "programs run", func() []string {
		o, err := d.run(ctx, "shell", "exit 7", 30*time.Second)
		if err != nil || o.Exit == nil || *o.Exit != 7 {
			return []string{fmt.Sprintf("%+v, %v; the daemon said:\n%s", o, err, d.said())}
		}
		return nil
	})
}

// ends fails the test unless the daemon exits cleanly and leaves nothing.
func (d *daemon) ends(t *testing.T) {
	t.Helper()
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	waitUntil(t, "nothing is left", func() []string { return leftovers(t, d) })
}

// Under memory pressure the kernel kills programs first, then their agents, and the daemon last. No
// program can lower its oom_score_adj below the daemon's.
func TestWhoIsKilledForMemory(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Root)
	d := newDaemon(t, t.TempDir())
	start(t, d, 1)
	// Short-lived children of a program may exit before their score is read.
	score := func(pid int) (n int, there bool) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			return 0, false
		}
		if n, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			t.Fatal(err)
		}
		return n, true
	}
	if own, there := score(d.cmd.Process.Pid); !there || own >= 0 && mayLower(t) {
		t.Errorf("the daemon's score is %d", own)
	}
	found := 0
	for _, spawner := range agents(t, d, "spawner") {
		if n, there := score(spawner); !there || n < 0 {
			t.Errorf("the spawner's score is %d, to which its programs could lower theirs", n)
		}
		for _, agent := range childrenOf(t, spawner) {
			of, there := score(agent)
			if there && of < 500 {
				t.Errorf("an agent's score is %d", of)
			}
			programs, slot := programsOf(t, agent)
			for _, program := range programs {
				n, there := score(program)
				if there && (n < of || n == of && !slot) {
					t.Errorf("a program's score is %d, its agent's %d", n, of)
				}
				if there {
					found++
				}
			}
		}
	}
	if found == 0 {
		t.Error("no program was there to be looked at")
	}
	o, err := d.run(within(t, time.Minute), "shell", "echo -1 >/proc/self/oom_score_adj", 30*time.Second)
	if err != nil || o.Exit == nil || *o.Exit == 0 {
		t.Errorf("a program that lowers its score ends with %+v, %v", o, err)
	}
	d.ends(t)
}

// mayLower reports whether a process of this user may lower its oom_score_adj. That needs
// CAP_SYS_RESOURCE, which root in a container often lacks.
func mayLower(t *testing.T) bool {
	t.Helper()
	return exec.Command("/bin/sh", "-c", "echo -900 >/proc/$$/oom_score_adj").Run() == nil
}

// agents returns the agents that a daemon has started in this test. It waits for the first.
func agents(t *testing.T, d *daemon, part string) (pids []int) {
	t.Helper()
	waitUntil(t, "the daemon has an agent", func() []string {
		for _, f := range glob(t, "/proc/[0-9]*/cmdline") {
			b, _ := os.ReadFile(f)
			if strings.HasPrefix(string(b), "sandbar-agent\x00"+part+"\x00"+owner(d)) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
				pids = append(pids, pid)
			}
		}
		if len(pids) == 0 {
			return []string{"it has no " + part + "; it said:", d.said()}
		}
		return nil
	})
	return pids
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	for _, f := range glob(t, "/proc/[0-9]*/status") {
		if statusField(f, "PPid:") == strconv.Itoa(pid) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, n)
		}
	}
	return pids
}

// programsOf returns the programs of an agent, or of a slot. The child of a slot is the first
// process of a sandbox. All have one score, because neither is of use without the program.
func programsOf(t *testing.T, agent int) (pids []int, slot bool) {
	t.Helper()
	for _, pid := range childrenOf(t, agent) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		switch {
		case err != nil: // it has ended
		case string(comm) == "sandbar-agent\n":
			pids, slot = append(pids, childrenOf(t, pid)...), true
		default:
			pids = append(pids, pid)
		}
	}
	return pids, slot
}

// A daemon whose disk is full or read-only continues to run programs, reports what it cannot do,
// and recovers when there is space again.
func TestFullDisk(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Root)
	d := startIn(t, "mkdir state run\nmount -t tmpfs -o size=256k,mode=700 tmpfs state\nmount -t tmpfs -o size=256k,mode=700 tmpfs run")
	d.await(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.MkdirAll(image+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image+"/etc/large", make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	// usable fails unless sandboxes of both kinds work, and storing an image reports the cause.
	usable := func(when, why string) {
		t.Helper()
		d.works(t)
		if err := sandboxes(t.Context(), d); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if out, err := d.inside("sandbar", "images", "import", image, "large").CombinedOutput(); err == nil || !strings.Contains(string(out), why) {
			t.Errorf("%s: an import: %v: %s", when, err, out)
		}
	}
	shell := func(script string) {
		t.Helper()
		if out, err := d.inside("/bin/sh", "-c", "cd "+d.dir+"\n"+script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	shell("for d in state run; do head -c 1M /dev/zero >$d/full 2>/dev/null && exit 1; done; true")
	usable("with a full disk", "no space")
	// The kernel pins the removed staging directory until it has freed the unpacker's Landlock
	// ruleset, some time after the process has exited. Until then the remount fails.
	shell(`rm state/full run/full; for d in state run; do
	n=0; until mount -o remount,ro $d; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.05; done; done`)
	usable("with a disk that can only be read", "read-only")
	shell("for d in state run; do mount -o remount,rw,size=16m $d; done")
	d.works(t)
	if out, err := d.inside("sandbar", "images", "import", image, "large").CombinedOutput(); err != nil {
		t.Errorf("an import when there is room: %v: %s", err, out)
	}
	d.ends(t)
}

// inside returns a command in the daemon's mount namespace; "sandbar" is the tested build.
func (d *daemon) inside(name string, args ...string) *exec.Cmd {
	if name == "sandbar" {
		name = d.cmd.Args[4]
	}
	cmd := exec.Command("nsenter", append([]string{"--mount=/proc/" + strconv.Itoa(d.cmd.Process.Pid) + "/ns/mnt", "--", name}, args...)...)
	cmd.Env = append(environ(), "SANDBAR_STATE_DIR="+filepath.Join(d.dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(d.dir, "run"))
	return cmd
}

// crowd runs n programs at once, each on its own connection. Every execution must end with a result
// or a typed error; unheard counts those whose connection was refused or closed.
func (d *daemon) crowd(t *testing.T, n int) (ran, refused, unheard int) {
	t.Helper()
	return d.crowdOf(t, n, "sleep 0.3; exit 7", 7)
}

// crowdOf is crowd for a program that exits with 7, or with another code if the kernel may have
// refused it a resource.
func (d *daemon) crowdOf(t *testing.T, n int, program string, starved int) (ran, refused, unheard int) {
	t.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			o, err := d.run(ctx, "shell", program, 30*time.Second)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				t.Error("a caller has no answer")
			case err != nil:
				unheard++
			case o.Exit != nil && (*o.Exit == 7 || *o.Exit == starved):
				ran++
			case o.Type == "error" && o.Code != "" && o.Message != "":
				refused++
			default:
				t.Errorf("an execution ended with %+v", o)
			}
		})
	}
	wait.Wait()
	t.Logf("%d ran, %d were refused, %d had no connection", ran, refused, unheard)
	return ran, refused, unheard
}

// A daemon with a low limit of descriptors answers every connection that it can accept, with a
// result or a typed error, and recovers when the clients have left.
func TestFewDescriptors(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	d := startIn(t, "ulimit -n 100", "SANDBAR_TEMPLATES=off", "SANDBAR_LIMITS_DEFAULT_FILES=64", "SANDBAR_LIMITS_MIN_FILES=16")
	d.await(t)
	d.works(t)
	if _, refused, unheard := d.crowd(t, 40); refused+unheard == 0 {
		t.Error("there were descriptors for all: nothing was tested")
	}
	d.works(t)
	d.ends(t)
}

// At the process limit every client is answered, the daemon survives, and recovers when processes
// are available again. Programs that were started before may fail to fork.
func TestFewThreads(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Root, testenv.CgroupV1)
	group := pidsGroup(t)
	d := startIn(t, "echo $$ >"+group+"/cgroup.procs", "SANDBAR_TEMPLATES=off")
	d.await(t)
	d.works(t)
	limit := func(n string) {
		if err := os.WriteFile(group+"/pids.max", []byte(n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, room := range []int{0, 10, 60} {
		used, err := strconv.Atoi(readTrim(t, group+"/pids.current"))
		if err != nil {
			t.Fatal(err)
		}
		limit(strconv.Itoa(used + room))
		ran, refused, unheard := d.crowdOf(t, 40, "sleep 0.3 2>/dev/null; exit 7", 2)
		// Processes that end make room, and a slot that waits for its next program has one already.
		if refused == 0 || unheard > 0 || room == 0 && ran > refused {
			t.Errorf("with room for %d: %d ran, %d were refused, %d had no connection; the daemon said:\n%s", room, ran, refused, unheard, d.said())
		}
		limit("max")
		d.works(t)
	}
	d.ends(t)
}

func readTrim(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// pidsGroup creates a version 1 cgroup with the pids controller below this process's, and removes
// it at the end, with cgroups that daemons leave in it.
func pidsGroup(t *testing.T) string {
	t.Helper()
	own := ""
	for _, line := range strings.Split(readTrim(t, "/proc/self/cgroup"), "\n") {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && f[1] == "pids" {
			own = f[2]
		}
	}
	group := filepath.Join("/sys/fs/cgroup/pids", own, "few-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		waitUntil(t, "the control group is empty", func() []string {
			for _, dir := range append(glob(t, group+"/sandbar/*.sb_*"), group+"/sandbar", group) {
				_ = os.Remove(dir) // may still be busy, or missing
			}
			return glob(t, group)
		})
	})
	return group
}

// At the namespace limit the daemon refuses sandboxes with a typed error, running ones continue,
// and the daemon recovers when namespaces are available again.
func TestFewNamespaces(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	// The limits of a user namespace also apply to its descendants (namespaces(7)).
	d := startIn(t, `set -- unshare --user --map-root-user sh -ec 'echo 4 >/proc/sys/user/max_net_namespaces; exec "$@"' sh "$@"`, "SANDBAR_TEMPLATES=off")
	d.await(t)
	d.works(t)
	ran, refused, unheard := d.crowd(t, 16)
	if ran == 0 || refused == 0 || unheard > 0 {
		t.Errorf("%d ran, %d were refused, %d had no connection; the daemon said:\n%s", ran, refused, unheard, d.said())
	}
	d.works(t)
	d.ends(t)
}

// As PID 1 of a container the daemon reaps orphans, exits on SIGTERM, and works as elsewhere. When
// it removes leftovers of dead daemons, it does not touch those of a live daemon outside of its PID
// namespace.
func TestFirstProcess(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	// It starts programs all the time, which it cannot once its limits are taken from it.
	outside := newDaemon(t, t.TempDir(), "SANDBAR_TEMPLATES=off")
	neighbour := make(chan outcome, 1)
	go func() {
		o, err := outside.run(t.Context(), "shell", "while sleep 0.1; do :; done", 2*time.Minute)
		if err != nil {
			o.Message = err.Error()
		}
		neighbour <- o
	}()
	waitUntil(t, "a program runs outside", func() []string {
		for _, agent := range childrenOf(t, agents(t, outside, "spawner")[0]) {
			if len(childrenOf(t, agent)) > 0 {
				return nil
			}
		}
		return []string{"none"}
	})
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	d := startAs(t, attr, "mount --make-rprivate /\nmount -t proc proc /proc")
	d.await(t)
	d.works(t)
	select {
	case o := <-neighbour:
		t.Fatalf("a program of another daemon has ended: %+v", o)
	default:
	}
	first := d.cmd.Process.Pid
	var daemon int
	waitUntil(t, "it has become two", func() []string {
		children := childrenOf(t, first)
		if len(children) != 1 {
			return []string{fmt.Sprint(children)}
		}
		daemon = children[0]
		return nil
	})
	ended := make(chan outcome, 1)
	go func() {
		o, _ := d.run(t.Context(), "shell", "sleep 1000", 2*time.Minute)
		ended <- o
	}()
	waitUntil(t, "a program runs", func() []string {
		for _, spawner := range childrenOf(t, daemon) {
			for _, agent := range childrenOf(t, spawner) {
				if len(childrenOf(t, agent)) > 0 {
					return nil
				}
			}
		}
		return []string{"none"}
	})
	for _, pid := range childrenOf(t, daemon) { // the spawner and the template processes
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
	if o := <-ended; o.Type == "" {
		t.Error("a caller has no answer")
	}
	waitUntil(t, "orphans are waited for", func() []string {
		if left := childrenOf(t, first); !slices.Equal(left, []int{daemon}) {
			return []string{fmt.Sprint(left)}
		}
		return nil
	})
	d.works(t)
	d.ends(t)
}

// The daemon's timeout kills a sandbox whose agent is stopped, and its caller is answered.
func TestStoppedAgent(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	d := newDaemon(t, t.TempDir(), "SANDBAR_TEMPLATES=off", "SANDBAR_GRACE=100ms")
	answer := make(chan outcome, 1)
	go func() {
		o, err := d.run(t.Context(), "shell", "sleep 1000", 8*time.Second)
		if err != nil {
			o.Message = err.Error()
		}
		answer <- o
	}()
	spawner := agents(t, d, "spawner")[0]
	waitUntil(t, "the program runs", func() []string {
		for _, agent := range childrenOf(t, spawner) {
			if len(childrenOf(t, agent)) > 0 {
				return nil
			}
		}
		return []string{"it does not"}
	})
	for _, agent := range childrenOf(t, spawner) {
		if err := unix.Kill(agent, unix.SIGSTOP); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
	select {
	case o := <-answer:
		if o.Type != "result" && o.Code == "" {
			t.Errorf("the answer is %+v", o)
		}
	case <-time.After(time.Minute):
		t.Fatal("the caller has no answer")
	}
	d.works(t)
	d.ends(t)
}

// If the spawner is stopped, a request for a sandbox is answered within the setup timeout. When the
// spawner continues or is killed, the daemon recovers.
func TestStoppedSpawner(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	for _, then := range []unix.Signal{unix.SIGCONT, unix.SIGKILL} {
		d := newDaemon(t, t.TempDir(), "SANDBAR_TEMPLATES=off")
		if err := unix.Kill(agents(t, d, "spawner")[0], unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		answer := make(chan string, 1)
		go func() {
			o, err := d.run(t.Context(), "shell", "exit 7", 20*time.Second)
			if err == nil && (o.Exit != nil && *o.Exit == 7 || o.Code != "" && o.Message != "") {
				answer <- ""
				return
			}
			answer <- fmt.Sprintf("%+v, %v", o, err)
		}()
		time.Sleep(200 * time.Millisecond) // the request most likely waits by now; it must be answered in any case
		if err := unix.Kill(agents(t, d, "spawner")[0], then); err != nil {
			t.Fatal(err)
		}
		select {
		case wrong := <-answer:
			if wrong != "" {
				t.Errorf("after %v: %s; the daemon said:\n%s", then, wrong, d.said())
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("after %v the caller has no answer; the daemon said:\n%s", then, d.said())
		}
		d.works(t)
		d.ends(t)
	}
}

// A program can neither end nor stop its agent.
func TestAgentFromInside(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	d := newDaemon(t, t.TempDir())
	for _, signal := range []string{"KILL", "STOP", "TERM", "SEGV", "ABRT"} {
		o, err := d.run(within(t, time.Minute), "shell", "kill -"+signal+" 1; kill -"+signal+" -- -1; exit 7", 30*time.Second)
		if err != nil || o.Type != "result" {
			t.Errorf("kill -%s of everything: %+v, %v", signal, o, err)
		}
	}
	d.works(t)
	d.ends(t)
}
