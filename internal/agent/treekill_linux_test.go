package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// initEnv makes this test binary PID 1 of a PID namespace, in which it kills process trees.
const initEnv = "AGENT_TEST_INIT"

func TestMain(m *testing.M) {
	if os.Getenv(initEnv) == "" {
		os.Exit(m.Run())
	}
	if err := killAsInit(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func TestParseTag(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]uint64{
		"":   0,
		head: 0,
		head + "Max file locks            unlimited            unlimited            locks     \n":                              0,
		head + "Max cpu time              7                    7                    seconds   \nMax file locks  5  6  locks\n": 6,
		head + "Max file locks            4611686018427387904  4611686018427387904  locks     \n":                              1 << 62,
		head + "Max file locks": 0,
		head + "Max file locks            18446744073709551615 18446744073709551615 locks\n": 0, // not a valid tag: the limit is never so high
	} {
		if got := parseTag([]byte(text), tagLimitName(unix.RLIMIT_LOCKS)); got != want {
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
		stat("cat", 'Z', 2):       false, // the first thread has ended, another one runs
		stat("cat", 'X', 1):       true,
		stat("a) Z 1 (b", 'S', 1): false,
		stat(") S ", 'Z', 1):      true,
	} {
		if got := isDead([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A request ends after two consecutive complete scans without a tagged process, after one scan of a
// stopped sandbox, or after killTimeout and killScans.
func TestSettle(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	h := newTreeKiller(&agent{conn: &conn{out: int(null.Fd())}})
	later, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		q    killTarget
		s    scanResult
		over bool
		want int // consecutive scans without a tagged process, unless the request has ended
	}{
		"found":                       {killTarget{deadline: later, alive: true, emptyScans: 1}, scanResult{killed: true}, false, 0},
		"found, under a standstill":   {killTarget{deadline: later, alive: true}, scanResult{killed: true, stopped: true}, false, 0},
		"nothing, once":               {killTarget{deadline: later}, scanResult{}, false, 1},
		"nothing, twice":              {killTarget{deadline: later, emptyScans: 1}, scanResult{}, true, 0},
		"nothing, but something died": {killTarget{deadline: later, emptyScans: 1}, scanResult{raced: true}, false, 1},
		"nothing, under a standstill": {killTarget{deadline: later}, scanResult{stopped: true, raced: true}, true, 0},
		"something hides":             {killTarget{deadline: later, emptyScans: 1}, scanResult{unreadable: true}, false, 0},
		"hidden, under a standstill":  {killTarget{deadline: later, emptyScans: 1}, scanResult{unreadable: true, stopped: true}, false, 0},
		"only another's":              {killTarget{deadline: later, emptyScans: 1}, scanResult{killed: true}, true, 0},
		"found, and the time is over": {killTarget{deadline: past, alive: true, scans: killScans}, scanResult{killed: true}, true, 0},
		"found, after a long scan":    {killTarget{deadline: past, alive: true}, scanResult{killed: true}, false, 0},
		"nothing, in the last moment": {killTarget{deadline: past, emptyScans: 1}, scanResult{}, true, 0},
	} {
		left := h.answerFinished([]killTarget{c.q}, c.s)
		if (len(left) == 0) != c.over || !c.over && left[0].emptyScans != c.want {
			t.Errorf("%s: left %+v", name, left)
		}
	}
}

// TestKillTree kills trees in a PID namespace of its own: by ordinary scans, with all processes
// stopped, and with a /proc that hides the target processes.
func TestKillTree(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ids := 1
	if os.Geteuid() == 0 {
		ids = otherGroup + 1
	}
	for _, mode := range []string{"looks", "still", "hidden"} {
		c := exec.CommandContext(t.Context(), exe)
		c.Env = append(os.Environ(), initEnv+"="+mode)
		c.Dir = t.TempDir()
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: ids}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: ids}},
			Pdeathsig:   syscall.SIGKILL,
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", mode, err, out)
		}
	}
}

// otherGroup is a group without the killing process. hidepid shows all processes to one group, by
// default that of the host's root.
const otherGroup = 4242

// killAsInit is run by PID 1: no process of a target's tree remains, and all other processes are
// unchanged.
func killAsInit() error {
	mode := os.Getenv(initEnv)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	all, err := mountProcfs()
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	shell := "/bin/sh"
	if mode == "hidden" {
		if shell, err = hide(); err != nil {
			return err
		}
	}
	proc, err := openProcfs()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	h := newTreeKiller(&agent{conn: &conn{out: int(null.Fd())}, proc: proc})
	h.setResource(unix.RLIMIT_LOCKS)
	const targets, others = 1000, 999
	prey, err := begin(shell, targets, "trap '' TERM; (setsid "+shell+" -c 'sleep 60; :' &) ; sleep 60 & wait")
	if err != nil {
		return err
	}
	busy, err := begin("/bin/sh", others, "while :; do :; done")
	if err != nil {
		return err
	}
	stopped, err := begin("/bin/sh", others, "kill -STOP $$")
	if err != nil {
		return err
	}
	if err := until(all, "TR", stopped, busy); err != nil {
		return err
	}
	for n := 0; n < 4; n = living(all, targets) { // two shells and two sleep processes
		time.Sleep(time.Millisecond)
	}
	if _, err := proc.open(strconv.Itoa(prey.Pid)); (err != nil) != (mode == "hidden") || hasEnded(err) {
		return fmt.Errorf("looking at what is targets: %v", err)
	}
	if mode == "still" {
		q := []killTarget{{tag: targets}, {tag: 1}, {tag: targets}}
		if s := h.scanStopped(q); !s.killed || !s.stopped || !q[0].alive || q[1].alive || !q[2].alive {
			return fmt.Errorf("a look under a standstill saw %+v of %+v", s, q)
		}
	} else {
		h.killAll([]killTarget{{tag: targets, deadline: time.Now().Add(time.Minute)}})
		if n := living(all, targets); n != 0 {
			return fmt.Errorf("after the hunt %d live", n)
		}
	}
	if _, err := prey.Wait(); err != nil {
		return err
	}
	for living(all, targets) > 0 {
		time.Sleep(time.Millisecond)
	}
	return until(all, "TR", stopped, busy)
}

// hide makes /proc hide processes that the calling thread may not trace, and drops the thread's
// right to trace. It returns a shell whose executable is unreadable, so that only root may trace
// it.
func hide() (shell string, err error) {
	if unix.Mount("proc", "/proc", "proc", 0, "hidepid=1,gid="+strconv.Itoa(otherGroup)) != nil { // the user namespace maps one id only
		if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid=1"); err != nil {
			return "", err
		}
	}
	b, err := os.ReadFile("/bin/sh")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile("shell", b, 0o111); err != nil {
		return "", err
	}
	runtime.LockOSThread() // permanently
	return "./shell", setCaps(0)
}

// begin starts a shell program with a tag. Tags decrease.
func begin(shell string, tag uint64, script string) (*os.Process, error) {
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: tag, Max: tag}, nil); err != nil {
		return nil, err
	}
	return os.StartProcess(shell, []string{"sh", "-c", script}, &os.ProcAttr{Env: os.Environ()})
}

// until waits until the processes have the states of the letters.
func until(all procfs, letters string, some ...*os.Process) error {
	h := newTreeKiller(&agent{proc: all})
	got := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		got = ""
		for _, p := range some {
			got += string(h.state(strconv.Itoa(p.Pid)))
		}
		if got == letters {
			return nil
		}
	}
	return fmt.Errorf("the others are in the states %q, want %q", got, letters)
}

// living returns the number of processes with a tag, without zombies.
func living(all procfs, tag uint64) (n int) {
	pids, _ := all.pids()
	for _, pid := range pids {
		var buf [8192]byte
		limits, _ := readProc(all.root, pid+"/limits", buf[:])
		if parseTag(limits, tagLimitName(unix.RLIMIT_LOCKS)) != tag {
			continue
		}
		if stat, _ := readProc(all.root, pid+"/stat", buf[:]); !isDead(stat) {
			n++
		}
	}
	return n
}

// One file decides on the meaning of an error of /proc.
func TestProcessesAreReadInOneFile(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	number := regexp.MustCompile(`"/proc/" ?\+`)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if number.Match(b) != (name == "proc_linux.go") && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s: only proc_linux.go names the files of processes", name)
		}
	}
}

// A tag never occurs twice, and a forked program has the tag that its launch names. An enforced
// limit is not a tag.
func TestTagsDecrease(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for _, resource := range []uint32{unix.RLIMIT_LOCKS, unix.RLIMIT_RSS} {
		m, err := newProcessTags(resource)
		if err != nil {
			t.Fatal(err)
		}
		for last, i := uint64(0), 0; i < 5; i++ {
			tag := <-m.next
			out, err := exec.Command("/bin/sh", "-c", "cat /proc/self/limits").Output()
			if got := parseTag(out, tagLimitName(resource)); err != nil || got != tag {
				t.Errorf("a program has the tag %d, %v; want %d", got, err, tag)
			}
			if i > 0 && tag >= last {
				t.Errorf("tag %d after %d", tag, last)
			}
			last = tag
			m.used <- struct{}{}
		}
	}
	for _, resource := range []uint32{unix.RLIMIT_NOFILE, unix.RLIMIT_DATA, 1 << 31} {
		if _, err := newProcessTags(resource); err == nil {
			t.Errorf("resource %d is taken for marks", resource)
		}
	}
}
