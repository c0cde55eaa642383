package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// initEnv makes this test binary PID 1 of a namespace, in which it hunts.
const initEnv = "AGENT_TEST_INIT"

func TestMain(m *testing.M) {
	if os.Getenv(initEnv) == "" {
		os.Exit(m.Run())
	}
	if err := huntAsInit(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func TestParseMark(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]uint64{
		"":   0,
		head: 0,
		head + "Max file locks            unlimited            unlimited            locks     \n":                              0,
		head + "Max cpu time              7                    7                    seconds   \nMax file locks  5  6  locks\n": 6,
		head + "Max file locks            4611686018427387904  4611686018427387904  locks     \n":                              1 << 62,
		head + "Max file locks": 0,
		head + "Max file locks            18446744073709551615 18446744073709551615 locks\n": 0, // is no number here: the limit is never so high
	} {
		if got := parseMark([]byte(text), markName(unix.RLIMIT_LOCKS)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestIsDead(t *testing.T) {
	stat := func(name string, state byte, threads int) string {
		return fmt.Sprintf("42 (%s) %c 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 %d 0 99 100\n", name, state, threads)
	}
	for text, want := range map[string]bool{
		"":                        true,
		"42 (cat":                 true,
		stat("cat", 'S', 1):       false,
		stat("cat", 'R', 7):       false,
		stat("cat", 'T', 1):       false,
		stat("cat", 'Z', 1):       true,
		stat("cat", 'Z', 2):       false, // its first thread has ended, another goes on
		stat("cat", 'X', 1):       true,
		stat("a) Z 1 (b", 'S', 1): false,
		stat(") S ", 'Z', 1):      true,
	} {
		if got := isDead([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A hunt ends with two looks in a row that found nothing and missed nothing,
// with one that nothing could be born in, or when its time is over.
func TestSettle(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	h := newHunter(&agent{link: &link{out: int(null.Fd())}})
	later, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		q    quarry
		s    sight
		over bool
		want int // looks that found nothing, if it is not over
	}{
		"found":                       {quarry{until: later, found: true, empty: 1}, sight{found: true}, false, 0},
		"found, under a standstill":   {quarry{until: later, found: true}, sight{found: true, still: true}, false, 0},
		"nothing, once":               {quarry{until: later}, sight{}, false, 1},
		"nothing, twice":              {quarry{until: later, empty: 1}, sight{}, true, 0},
		"nothing, but something died": {quarry{until: later, empty: 1}, sight{missed: true}, false, 1},
		"nothing, under a standstill": {quarry{until: later}, sight{still: true, missed: true}, true, 0},
		"only another's":              {quarry{until: later, empty: 1}, sight{found: true}, true, 0},
		"found, and the time is over": {quarry{until: past, found: true}, sight{found: true}, true, 0},
		"nothing, in the last moment": {quarry{until: past, empty: 1}, sight{}, true, 0},
	} {
		left := h.settle([]quarry{c.q}, c.s)
		if (len(left) == 0) != c.over || !c.over && left[0].empty != c.want {
			t.Errorf("%s: left %+v", name, left)
		}
	}
}

// TestHunt hunts in a PID namespace of its own, by ordinary looks and with
// everything standing still.
func TestHunt(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"looks", "still"} {
		c := exec.CommandContext(t.Context(), exe)
		c.Env = append(os.Environ(), initEnv+"="+mode)
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", mode, err, out)
		}
	}
}

// huntAsInit is what PID 1 does: of a hunted family nothing remains, of the
// others each is as it was.
func huntAsInit() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	proc, err := openProcfs()
	if err != nil {
		return err
	}
	h := newHunter(&agent{link: &link{out: int(null.Fd())}, proc: proc})
	h.track(unix.RLIMIT_LOCKS)
	const hunted, others = 1000, 999
	prey, err := begin(hunted, "trap '' TERM; (setsid sleep 60 &) ; sleep 60 & wait")
	if err != nil {
		return err
	}
	busy, err := begin(others, "while :; do :; done")
	if err != nil {
		return err
	}
	stopped, err := begin(others, "kill -STOP $$")
	if err != nil {
		return err
	}
	if err := until(h, "TR", stopped, busy); err != nil {
		return err
	}
	for n := 0; n < 3; n = living(h, hunted) { // the shell and two that sleep
		time.Sleep(time.Millisecond)
	}
	if os.Getenv(initEnv) == "still" {
		q := []quarry{{mark: hunted}, {mark: 1}, {mark: hunted}}
		if s := h.lookStill(q); !s.found || !s.still || !q[0].found || q[1].found || !q[2].found {
			return fmt.Errorf("a look under a standstill saw %+v of %+v", s, q)
		}
	} else {
		h.hunt([]quarry{{mark: hunted, until: time.Now().Add(time.Minute)}})
		if n := living(h, hunted); n != 0 {
			return fmt.Errorf("after the hunt %d live", n)
		}
	}
	if _, err := prey.Wait(); err != nil {
		return err
	}
	for living(h, hunted) > 0 {
		time.Sleep(time.Millisecond)
	}
	return until(h, "TR", stopped, busy)
}

// begin starts a shell program with a mark. Marks are given out falling.
func begin(mark uint64, script string) (*os.Process, error) {
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: mark, Max: mark}, nil); err != nil {
		return nil, err
	}
	return os.StartProcess("/bin/sh", []string{"sh", "-c", script}, &os.ProcAttr{Env: os.Environ()})
}

// until waits until the processes are in the states of the letters.
func until(h *hunter, letters string, all ...*os.Process) error {
	got := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		got = ""
		for _, p := range all {
			got += string(h.state(strconv.Itoa(p.Pid)))
		}
		if got == letters {
			return nil
		}
	}
	return fmt.Errorf("the others are in the states %q, want %q", got, letters)
}

// living counts what carries a mark and is not dead.
func living(h *hunter, mark uint64) (n int) {
	pids, _ := h.a.proc.pids()
	for _, pid := range pids {
		limits, _ := os.ReadFile("/proc/" + pid + "/limits")
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		if parseMark(limits, h.limit) == mark && !isDead(stat) {
			n++
		}
	}
	return n
}

// A mark never comes twice, and a program that is forked has the one it was
// told of. What is enforced is no mark.
func TestMarksFall(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for _, resource := range []uint32{unix.RLIMIT_LOCKS, unix.RLIMIT_RSS} {
		m, err := newMarks(resource)
		if err != nil {
			t.Fatal(err)
		}
		for last, i := uint64(0), 0; i < 5; i++ {
			mark := <-m.next
			out, err := exec.Command("/bin/sh", "-c", "cat /proc/self/limits").Output()
			if got := parseMark(out, markName(resource)); err != nil || got != mark {
				t.Errorf("a program has the mark %d, %v; want %d", got, err, mark)
			}
			if i > 0 && mark >= last {
				t.Errorf("mark %d after %d", mark, last)
			}
			last = mark
			m.taken <- struct{}{}
		}
	}
	for _, resource := range []uint32{unix.RLIMIT_NOFILE, unix.RLIMIT_DATA, 1 << 31} {
		if _, err := newMarks(resource); err == nil {
			t.Errorf("resource %d is taken for marks", resource)
		}
	}
}
