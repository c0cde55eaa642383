package native

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// sleeper creates a sandbox and starts a program in it.
func sleeper(t *testing.T, d *Driver) (driver.Sandbox, driver.Process) {
	t.Helper()
	box, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", stubborn}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	return box, p
}

// When the spawner process is killed, its sandboxes end, Wait returns Lost, no resource is left,
// and another spawner process starts new sandboxes.
func TestSpawnerKilled(t *testing.T) {
	d := newDriver(t)
	var boxes []driver.Sandbox
	var programs []driver.Process
	for range 3 {
		box, p := sleeper(t, d)
		boxes, programs = append(boxes, box), append(programs, p)
	}
	first := spawnersOf(d.Owner)
	if len(first) != 1 || len(agentsOf(d.Owner)) != len(boxes) {
		t.Fatalf("the driver has the spawners %v and the agents %v", first, agentsOf(d.Owner))
	}
	unix.Kill(first[0], unix.SIGKILL)
	for i, p := range programs {
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
			t.Errorf("got %v, %v; want lost", r.Outcome, err)
		}
		w, _ := driver.As[driver.Watcher](boxes[i])
		<-w.Dead()
	}
	waitUntil(t, "its agents have ended", func() bool { return len(agentsOf(d.Owner)) == 0 })

	box, p := sleeper(t, d)
	if now := spawnersOf(d.Owner); len(now) != 1 || now[0] == first[0] {
		t.Errorf("after %v the spawners are %v", first, now)
	}
	for _, b := range append(boxes, box) {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("got %v, %v; want lost", r.Outcome, err)
	}
	if groups := groupsOf(d.Owner); len(groups) > 0 {
		t.Errorf("groups left: %v", groups)
	}
}

// While the spawner process is killed repeatedly, each Create succeeds or returns an error, and no
// sandbox is left.
func TestSpawnerKilledMeanwhile(t *testing.T) {
	d := newDriver(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				box, err := d.Create(context.Background(), sandbar.NewID(), degraded(d))
				if err != nil {
					continue
				}
				if err := box.Destroy(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	made := make(chan struct{})
	go func() {
		all.Wait()
		close(made)
	}()
	for ended := false; !ended; {
		for _, pid := range spawnersOf(d.Owner) {
			unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-made:
			ended = true
		default:
		}
	}
	waitUntil(t, "no agent is left", func() bool { return len(agentsOf(d.Owner)) == 0 })
	if groups := groupsOf(d.Owner); len(groups) > 0 {
		t.Errorf("groups left: %v", groups)
	}
	box, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	box.Destroy(context.Background())
}

// Agents that end leave no zombie and no descriptor in the spawner process.
func TestSpawnerKeepsNothing(t *testing.T) {
	d := newDriver(t)
	pid := spawnersOf(d.Owner)[0]
	open := func() int {
		fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	round := func() {
		box, _ := sleeper(t, d)
		if err := box.Destroy(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	round() // opens the descriptors that stay open
	before := open()
	for range 5 {
		round()
	}
	box, _ := sleeper(t, d)
	if n := len(childrenOf(t, pid)); n != 1 {
		t.Errorf("it has %d children, want the one agent", n)
	}
	box.Destroy(context.Background())
	if after := open(); after != before {
		t.Errorf("it had %d descriptors open, now %d", before, after)
	}
	waitUntil(t, "it has no child, dead or alive", func() bool { return len(childrenOf(t, pid)) == 0 })
}

// childrenOf lists the children of pid, zombies included.
func childrenOf(t *testing.T, pid int) (children []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err == nil && strings.Contains(string(b), "\nPPid:\t"+strconv.Itoa(pid)+"\n") {
			n, _ := strconv.Atoi(e.Name())
			children = append(children, n)
		}
	}
	return children
}

// An invalid request returns an error, and the next request succeeds.
func TestSpawnRefused(t *testing.T) {
	d := newDriver(t)
	ours, theirs, err := spawn.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	r := d.IDs.Request(d.mode, &spawn.Range{First: 0x70000000}, sandboxUID)
	r.UIDs.Size = 0 // an empty map is invalid
	if _, err := d.Spawner.Start(r, nil, theirs); sandbar.CodeOf(err) != sandbar.Internal || !strings.Contains(err.Error(), "start the agent") {
		t.Errorf("got %v", err)
	}
	before := spawnersOf(d.Owner)
	box, _ := sleeper(t, d)
	box.Destroy(context.Background())
	if now := spawnersOf(d.Owner); len(now) != 1 || now[0] != before[0] {
		t.Errorf("the spawners were %v, now %v", before, now)
	}
	// An unknown message ends the spawner process and its agents.
	if _, err := d.Spawner.Start(&wire.Spawn{Mode: "no mode"}, nil, theirs); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v", err)
	}
}

// A closed driver has no process and starts none.
func TestSpawnerClosed(t *testing.T) {
	d := newDriver(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left := spawnersOf(d.Owner); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := d.Create(t.Context(), sandbar.NewID(), degraded(d)); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("Create: %v; want unavailable", err)
	}
}

// Programs do not inherit the agent's timer slack: their timers are as exact as on the host.
func TestProgramsHaveTheUsualTimers(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := newDriver(t)
	box, err := d.Create(t.Context(), sandbar.NewID(), degraded(d))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	const slack = `import ctypes; print(ctypes.CDLL(None).prctl(30, 0, 0, 0, 0))` // PR_GET_TIMERSLACK
	got := run(t, box, slack)
	want, err := exec.Command("python3", "-c", slack).Output()
	if err != nil || got != string(want) {
		t.Errorf("timers may be late by %q ns, on the host by %q (%v)", got, want, err)
	}
	for _, pid := range agentsOf(d.Owner) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/timerslack_ns")
		if err == nil && string(b) == got {
			t.Errorf("the agent's timers may be late by no more than those of programs: %q ns", b)
		}
	}
}
