package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The tests called TestHost… use the control groups of the kernel they run on,
// whatever the version. TestGuest runs them on other kernels.

// roleVariable makes the test binary play a program in a group.
const roleVariable = "SANDBAR_CGROUP_TEST_ROLE"

// enteredMain is the result of EnterThread on the main thread. Only TestMain certainly runs there.
var enteredMain error

func init() { runtime.LockOSThread() } // keeps TestMain on the main thread

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
		return
	}
	_, enteredMain = (&Group{m: &Manager{}}).EnterThread()
	// From here on other goroutines may run on the main thread, as in any program, so Start must
	// avoid it.
	runtime.UnlockOSThread()
	os.Exit(m.Run())
}

// held is the memory of the role "hold", in bytes.
const held = 96 << 20

// play runs the programs in groups.
func play(role string) {
	switch role {
	case "hold":
		b := make([]byte, held)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("held", len(b))
	case "spin": // 300 ms of processor time
		for {
			var u unix.Rusage
			if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil || u.Utime.Nano()+u.Stime.Nano() > 300e6 {
				return
			}
		}
	}
}

var instances atomic.Int64

// onHost returns a Manager of this kernel.
func onHost(t *testing.T) *Manager {
	t.Helper()
	if !testenv.CgroupV2.Met() {
		testenv.Need(t, testenv.CgroupV1)
	}
	return detectHost(t)
}

func detectHost(t *testing.T) *Manager {
	t.Helper()
	m, err := Detect(fmt.Sprintf("test%d-%d", os.Getpid(), instances.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// create makes a group that the test removes.
func create(t *testing.T, m *Manager, id string, l sandbar.Limits) *Group {
	t.Helper()
	g, err := m.Create(id, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	return g
}

// destroy removes a group and checks that it is gone.
func destroy(t *testing.T, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Destroy(ctx); err != nil {
		t.Error(err)
	}
	for _, dir := range g.Dirs() {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
}

// start starts a program in the group.
func start(t *testing.T, g *Group, cmd *exec.Cmd) {
	t.Helper()
	if err := tryStart(g, cmd); err != nil {
		t.Fatal(err)
	}
}

func tryStart(g *Group, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return g.Start(cmd.SysProcAttr, cmd.Start)
}

func player(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

// wait waits until f returns true, and fails the test after a timeout.
func wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 3000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain: %s", what)
}

// Every usable controller is used, and every other one has a reason.
func TestHostDetect(t *testing.T) {
	m := detectHost(t)
	usable := testenv.CgroupV1.Met() || testenv.CgroupV2.Met()
	if got := m.Caps().Any(); got != usable {
		t.Errorf("groups can be made: %v, want %v: %+v", got, usable, m.Controllers())
	}
	if len(m.Controllers()) < 3 {
		t.Errorf("only %d controllers are reported", len(m.Controllers()))
	}
	for _, c := range m.Controllers() {
		if c.Version == 0 && (c.Reason == "" || c.Fix == "") {
			t.Errorf("%s cannot be used, without a reason or a fix: %+v", c.Name, c)
		}
		if c.Version != 0 && !strings.HasSuffix(c.Dir, "/"+parentName) {
			t.Errorf("%s is at %q", c.Name, c.Dir)
		}
	}
	if !usable {
		if _, err := m.Create("x", sandbar.Limits{}); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("Create: %v, want Unsupported", err)
		}
		return
	}
	c := m.Caps()
	if !c.OOMCounted || !c.CPUCounted || !c.PeakCounted || c.CPUs != c.CPUShares {
		t.Errorf("caps: %+v", c)
	}
}

func TestHostMemory(t *testing.T) {
	m := onHost(t)
	const limit = 32 << 20
	g := create(t, m, "memory", sandbar.Limits{Memory: limit})
	cmd := player(t, "hold")
	var out bytes.Buffer
	cmd.Stdout = &out
	start(t, g, cmd)
	err := cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL || out.Len() != 0 {
		t.Errorf("a program that holds 96 MiB ended with %v and %q, want SIGKILL", err, &out)
	}
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.OOMKills != 1 {
		t.Errorf("%d kills for memory were counted, want 1", s.OOMKills)
	}
	// The kernel allows a dying process a few more pages.
	if s.MemoryPeak < limit/2 || s.MemoryPeak > limit+1<<20 {
		t.Errorf("peak memory is %d, want nearly %d", s.MemoryPeak, limit)
	}
	// Without the limit the same program succeeds, so the limit was the cause.
	free := create(t, m, "free", sandbar.Limits{})
	cmd = player(t, "hold")
	start(t, free, cmd)
	if err := cmd.Wait(); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	s, err = free.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.OOMKills != 0 || s.MemoryPeak < held {
		t.Errorf("without a limit: %d kills, peak %d; want 0, 96 MiB or more", s.OOMKills, s.MemoryPeak)
	}
}

// The kernel kills only the process that allocates; other processes of the group survive.
func TestHostMemorySparesOthers(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "spare", sandbar.Limits{Memory: 32 << 20})
	small := shell("read x; exit 5")
	in, err := small.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, g, small)
	hog := player(t, "hold")
	start(t, g, hog)
	if err := hog.Wait(); err == nil {
		t.Error("the large one ended well")
	}
	in.Close()
	small.Wait()
	if code := small.ProcessState.ExitCode(); code != 5 {
		t.Errorf("the small one ended with %v, want exit code 5", small.ProcessState)
	}
}

func TestHostPIDs(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "pids", sandbar.Limits{PIDs: 5})
	cmd := shell("for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait")
	start(t, g, cmd)
	defer cmd.Wait()
	defer g.Kill()
	wait(t, "a refused fork", func() bool { s, _ := g.Stats(); return s.PIDsRefused > 0 })
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.PIDsCurrent > 5 {
		t.Errorf("%d processes with a limit of 5", s.PIDsCurrent)
	}
}

func TestHostCPUs(t *testing.T) {
	m := onHost(t)
	const cpus = 0.2
	g := create(t, m, "cpus", sandbar.Limits{CPUs: cpus, CPUShares: 512})
	cmd := player(t, "spin")
	begin := time.Now()
	start(t, g, cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	wall := time.Since(begin)
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.CPUTime < 290*time.Millisecond {
		t.Errorf("%v of processor time were counted, want 300 ms or more", s.CPUTime)
	}
	// A processor may exceed the quota by one slice per period.
	if most := time.Duration(cpus*1.3*float64(wall)) + 50*time.Millisecond; s.CPUTime > most {
		t.Errorf("used %v of processor time in %v, want at most %v", s.CPUTime, wall, most)
	}
	b, err := os.ReadFile(g.dir(m.hierarchyOf(cpu)) + "/cpu.stat")
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := field(b, "nr_throttled"); !ok || n == 0 {
		t.Errorf("never throttled: %q", b)
	}
}

// taskGroups returns the groups of each thread of this process.
func taskGroups(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil { // the thread may have ended
			groups[f] = string(b)
		}
	}
	return groups
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Every child starts in its own group, and every thread returns to the daemon's group.
func TestHostStart(t *testing.T) {
	m := onHost(t)
	home := taskGroups(t)["/proc/self/task/"+strconv.Itoa(os.Getpid())+"/cgroup"]
	start(t, create(t, m, "warm", sandbar.Limits{}), shell("exit 0")) // os/exec keeps a descriptor open
	before := openFiles(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			g, err := m.Create(fmt.Sprint("n", i), sandbar.Limits{PIDs: 10})
			if err != nil {
				t.Error(err)
				return
			}
			defer destroy(t, g)
			cmd := shell("cat /proc/self/cgroup")
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := tryStart(g, cmd); err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(out.String(), "/sandbar/"+g.Name()+"\n"); n != len(m.hierarchies) {
				t.Errorf("child is in its group in %d of %d hierarchies:\n%s", n, len(m.hierarchies), &out)
			}
			if cmd.SysProcAttr.UseCgroupFD || cmd.SysProcAttr.CgroupFD != 0 {
				t.Error("Start left its descriptor in attr")
			}
		})
	}
	wg.Wait()
	for task, groups := range taskGroups(t) {
		if groups != home {
			t.Errorf("%s is in\n%swant\n%s", task, groups, home)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

func TestHostStartFails(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "fails", sandbar.Limits{})
	home := taskGroups(t)
	if err := tryStart(g, exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want that of the function", err)
	}
	if m.hasVersion1() { // the function runs in a goroutine of its own
		if err := g.Start(&syscall.SysProcAttr{}, func() error { runtime.Goexit(); return nil }); err == nil {
			t.Error("a function that never returned is no error")
		}
	}
	// The thread of the function that did not return ends with its goroutine, some time later.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		astray := ""
		for task, groups := range taskGroups(t) {
			if want, ok := home[task]; ok && groups != want {
				astray = fmt.Sprintf("%s is in\n%swant\n%s", task, groups, want)
			}
		}
		if astray == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal(astray)
		}
	}
	destroy(t, g)
	if err := tryStart(g, shell("exit 0")); err == nil {
		t.Error("something was started in a group that is gone")
	}
}

func TestEnterThreadOnMain(t *testing.T) {
	if enteredMain == nil {
		t.Error("the main thread may enter a group")
	}
}

// onThread never uses the main thread, even when the runtime would.
func TestOnThread(t *testing.T) {
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			err := onThread(func() (bool, error) {
				if unix.Gettid() == unix.Getpid() {
					return true, errors.New("on the main thread")
				}
				return true, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// stubborn leaves processes that ignore signals, are in other sessions and have lost their parents.
const stubborn = `trap "" TERM HUP INT
setsid sh -c 'trap "" TERM; (sleep 1000 & sleep 1000 &) ; sleep 1000' &
(setsid setsid sleep 1000 &)
echo up
sleep 1000`

func processesIn(t *testing.T, g *Group) []string {
	t.Helper()
	list, err := g.m.readWords(g.Dirs()[0] + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestHostDestroyKills(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "stubborn", sandbar.Limits{PIDs: 20})
	cmd := shell(stubborn)
	start(t, g, cmd)
	wait(t, "six processes", func() bool { return len(processesIn(t, g)) >= 6 })
	list := processesIn(t, g)
	destroy(t, g)
	cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("the first ended with %v, want SIGKILL", cmd.ProcessState)
	}
	for _, pid := range list {
		// A number may be used again, by a process elsewhere.
		b, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err == nil && bytes.Contains(b, []byte(g.Name())) && !isDead(pid) {
			t.Errorf("process %s is still there", pid)
		}
	}
	if err := g.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy again: %v", err)
	}
	if err := g.Kill(); err != nil {
		t.Errorf("Kill after Destroy: %v", err)
	}
}

// isDead reports whether a process has ended. A zombie counts: PID 1 reaps an orphan some time
// later.
func isDead(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(f) > 0 && (f[0][0] == 'Z' || f[0][0] == 'X')
}

// Without cgroup.kill, as on version 1 and old kernels.
func TestHostKillEach(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "each", sandbar.Limits{PIDs: 40})
	cmd := shell(`f() { f | f & }; f; sleep 1000`)
	start(t, g, cmd)
	wait(t, "a fork bomb at its limit", func() bool { s, _ := g.Stats(); return s.PIDsRefused > 0 })
	for _, dir := range g.Dirs() {
		m.sys.WriteFile(dir+"/pids.max", "0")
	}
	for _, dir := range g.Dirs() {
		if err := m.killEach(dir); err != nil {
			t.Error(err)
		}
	}
	cmd.Wait()
	wait(t, "the end of all", func() bool { return len(processesIn(t, g)) == 0 })
}

// A process that has left the group since the list was read is not killed.
func TestHostKillOneChecks(t *testing.T) {
	m := onHost(t)
	g := create(t, m, "checks", sandbar.Limits{})
	cmd := shell("read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil { // not in the group
		t.Fatal(err)
	}
	dir := g.Dirs()[0]
	for _, pid := range []string{strconv.Itoa(cmd.Process.Pid), strconv.Itoa(os.Getpid()), "0", "-1", "x", "1"} {
		if m.killOne(dir, pid) {
			t.Errorf("killed %s, which is not in the group", pid)
		}
	}
	in.Close()
	cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Exited() {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
}

func TestHostDestroyIsBounded(t *testing.T) {
	m := onHost(t)
	if !m.hasVersion1() {
		// Only on version 1 can this process itself be in a group, and Kill never kills it.
		return
	}
	g := create(t, m, "bounded", sandbar.Limits{})
	err := onThread(func() (bool, error) {
		leave, err := g.EnterThread()
		if err != nil {
			return false, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := g.Destroy(ctx); sandbar.CodeOf(err) != sandbar.Timeout {
			t.Errorf("Destroy of a group in use: %v, want Timeout", err)
		}
		return true, leave()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestHostLeftovers(t *testing.T) {
	live := onHost(t)
	dead := detectHost(t)
	g := create(t, dead, "a", sandbar.Limits{})
	create(t, live, "b", sandbar.Limits{})
	cmd := shell("sleep 1000")
	start(t, g, cmd)
	list, err := live.Leftovers(func(instance string) bool { return instance != dead.instance }, dead.Parents()...)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name != g.Name() || !slices.Equal(list[0].Dirs, g.Dirs()) {
		t.Fatalf("leftovers are %+v, want %s at %v", list, g.Name(), g.Dirs())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := live.Remove(ctx, list[0]); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	list, err = live.Leftovers(func(instance string) bool { return instance != dead.instance })
	if err != nil || len(list) != 0 {
		t.Errorf("after Remove: %+v, %v", list, err)
	}
}

// Opening and closing Managers leaves no group.
func TestHostClose(t *testing.T) {
	onHost(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	home, before := taskGroups(t), openFiles(t)
	for i := range 5 {
		m, err := Detect(fmt.Sprintf("close%d-%d", os.Getpid(), i))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}
	for task, groups := range taskGroups(t) {
		if want, ok := home[task]; ok && groups != want {
			t.Errorf("%s is in\n%swant\n%s", task, groups, want)
		}
	}
}

// Freeze stops every process of a group but one, also those that start others all the time. They
// can be killed, and nothing is left of the group.
func TestHostFreeze(t *testing.T) {
	m := onHost(t)
	if err := m.CanFreeze(); err != nil {
		t.Fatal(err)
	}
	g := create(t, m, "freeze", sandbar.Limits{PIDs: 200})
	dir := t.TempDir()
	programs := []*exec.Cmd{shell("while :; do sleep 0.01; done")}
	for i := range 4 {
		programs = append(programs, shell(fmt.Sprintf("i=0; while :; do i=$((i+1)); echo $i >%s/%d; (: &) ; done", dir, i)))
	}
	for _, p := range programs {
		start(t, g, p)
	}
	keep := programs[0]
	written := func() (all string) {
		for i := range 4 {
			b, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)))
			all += string(b) + " "
		}
		return all
	}
	wait(t, "programs run", func() bool { return len(strings.Fields(written())) == 4 })
	for range 3 {
		if err := g.Freeze(t.Context(), keep.Process.Pid); err != nil {
			t.Fatal(err)
		}
		before := written()
		time.Sleep(50 * time.Millisecond)
		if after := written(); after != before {
			t.Errorf("frozen programs write: %q, then %q", before, after)
		}
		if err := unix.Kill(keep.Process.Pid, 0); err != nil {
			t.Error(err)
		}
		if err := g.Thaw(); err != nil {
			t.Fatal(err)
		}
		wait(t, "thawed programs run", func() bool { return written() != before })
	}
	if err := g.Freeze(t.Context(), keep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	destroy(t, g) // with frozen processes
	for _, p := range programs {
		p.Wait()
	}
	if err := g.Freeze(t.Context(), 0); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("freezing a group that is gone: %v", err)
	}
	if err := g.Thaw(); err != nil {
		t.Error(err)
	}
	for _, parent := range m.Parents() {
		if left, _ := filepath.Glob(filepath.Join(parent, m.instance+".freeze*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
