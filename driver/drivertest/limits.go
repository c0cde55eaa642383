package drivertest

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// limit is one limit that drivers enforce: its name, how to set it, its mechanism, and a program
// that must reach it.
type limit struct {
	name     string
	enforced func(sandbar.Enforcements) sandbar.Enforcement
	set      func(*sandbar.Limits)
	bite     func(*C)
	needs    []need
}

func limits() []limit {
	return []limit{
		{"memory", func(e sandbar.Enforcements) sandbar.Enforcement { return e.Memory },
			func(l *sandbar.Limits) { l.Memory = 64 << 20 }, memoryBites, nil},
		{"cpus", func(e sandbar.Enforcements) sandbar.Enforcement { return e.CPUs },
			func(l *sandbar.Limits) { l.CPUs = 0.25 }, cpusBite, nil},
		{"cpu_shares", func(e sandbar.Enforcements) sandbar.Enforcement { return e.CPUShares },
			func(l *sandbar.Limits) { l.CPUShares = 64 }, sharesBite, []need{needPython()}},
		{"pids", func(e sandbar.Enforcements) sandbar.Enforcement { return e.PIDs },
			func(l *sandbar.Limits) { l.PIDs = 32 }, pidsBite, nil},
		{"disk", func(e sandbar.Enforcements) sandbar.Enforcement { return e.Disk },
			func(l *sandbar.Limits) { l.Disk = 4 << 20 }, diskBites, nil},
		{"inodes", func(e sandbar.Enforcements) sandbar.Enforcement { return e.Inodes },
			func(l *sandbar.Limits) { l.Inodes = 64 }, inodesBite, nil},
		{"files", func(e sandbar.Enforcements) sandbar.Enforcement { return e.Files },
			func(l *sandbar.Limits) { l.Files = 64 }, filesBite, []need{needPython()}},
	}
}

// limitCases test that a claimed limit is enforced, and that an unclaimed one is refused unless the
// Spec has AllowDegraded.
func limitCases() []testCase {
	var cases []testCase
	for _, l := range limits() {
		cases = append(cases, testCase{name: l.name, needs: l.needs, run: func(c *C) {
			if l.enforced(c.d.Caps().Enforced) == sandbar.EnforcedNone {
				refused(c, l)
			} else {
				l.bite(c)
			}
		}})
	}
	return append(cases,
		testCase{name: "unlimited", run: func(c *C) {
			b := c.box(func(s *sandbar.Spec) {
				u := int64(sandbar.Unlimited)
				s.Limits = sandbar.Limits{Memory: u, CPUs: sandbar.Unlimited, CPUShares: u, PIDs: u, Disk: u, Inodes: u, Files: u, Timeout: sandbar.Unlimited, Output: u}
			})
			c.exited(c.sh(b, "echo x > f; exit 2"), 2, "a program without limits")
		}},
		testCase{name: "shared-memory", needs: []need{needPython(), needMemory()}, run: func(c *C) {
			// Together the programs map three times the limit and use a fraction of it. All have
			// started before the first continues.
			b := c.box(func(s *sandbar.Spec) { s.Limits.Memory = 256 << 20 })
			r := c.try(b, sandbar.Cmd{Args: []string{c.s.python, "-c", `
import os, time
kept = b"x" * (32 << 20)
r, w = os.pipe()
children = []
for i in range(24):
    pid = os.fork()
    if pid == 0:
        os.close(w); os.read(r, 1)
        end = time.monotonic() + 1
        while time.monotonic() < end: pass
        os._exit(kept[-1] != 120)
    children.append(pid)
os.close(w)
print(sum(os.waitpid(pid, 0)[1] == 0 for pid in children), flush=True)
os._exit(9)`}}, driver.Stdio{})
			c.exited(r, 9, "a program whose processes share their memory")
			if r.out != "24\n" {
				c.Errorf("of 24 processes that share memory these ended: %s", sandbar.Quote(r.out, 40))
			}
		}},
		testCase{name: "two-at-once", needs: []need{needMemory()}, run: func(c *C) {
			// A sandbox that reaches its memory limit does not affect its neighbour.
			victim, neighbour := c.box(small), c.box(small)
			stdin, end := io.Pipe()
			defer end.Close()
			var out buffer
			p := c.start(neighbour, sandbar.Cmd{Args: []string{"sh", "-c", "echo up; read line; exit 13"}}, driver.Stdio{Stdin: stdin, Stdout: &out})
			c.until(out.has("up"), "the neighbour is up")
			c.sh(victim, hogScript)
			end.Close()
			if res := c.wait(p); res.OOMKills != 0 || res.Outcome != sandbar.Exited || res.ExitCode != 13 {
				c.Errorf("the neighbour of a sandbox that ran out of memory: %+v", res)
			}
		}})
}

func needMemory() need {
	return needClaim("to hold memory", func(k driver.Caps) bool { return k.Enforced.Memory != sandbar.EnforcedNone })
}

// refused tests that a limit that is not enforced is an error of Create, and that with
// AllowDegraded the result reports it.
func refused(c *C, l limit) {
	spec := c.spec()
	l.set(&spec.Limits)
	b, err := c.d.Create(c.ctx, c.newID(), spec)
	c.code(err, "Create with a limit that is not held: "+l.name, sandbar.Unsupported)
	if err == nil {
		c.destroy(b)
	} else if e := sandbar.AsError(err); e.Field == "" {
		c.Errorf("the refusal of %s names no field: %v", l.name, err)
	}
	degraded := c.box(func(s *sandbar.Spec) {
		l.set(&s.Limits)
		s.AllowDegraded = true
	})
	r := c.sh(degraded, "exit 3")
	c.exited(r, 3, "a program with "+l.name+" accepted as not held")
	if by := l.enforced(r.Enforced); by != sandbar.EnforcedNone {
		c.Errorf("the result reports that %s was enforced by %q", l.name, by)
	}
}

func small(s *sandbar.Spec) { s.Limits.Memory = 64 << 20 }

// hogScript allocates memory until it is killed or has 1 GiB.
const hogScript = `x=0123456789abcdef; i=0; while [ $i -lt 26 ]; do x=$x$x; i=$((i+1)); done; echo survived`

func memoryBites(c *C) {
	b := c.box(small)
	caps := c.d.Caps()
	r := c.sh(b, hogScript)
	if strings.Contains(r.out, "survived") {
		c.Fatalf("a program took 1 GiB under a limit of 64 MiB")
	}
	byGroup := caps.Enforced.Memory == sandbar.EnforcedCgroup1 || caps.Enforced.Memory == sandbar.EnforcedCgroup2
	if (byGroup || caps.Enforced.Memory == sandbar.EnforcedWatchdog) && r.Outcome != sandbar.OutOfMemory {
		c.Errorf("a program that runs out of memory has outcome %v: %v", r.Outcome, r)
	}
	if caps.OOMCounted && r.OOMKills < 1 {
		c.Errorf("kills for memory are counted, and there were %d", r.OOMKills)
	}
	if byGroup && (r.PeakMemory < 32<<20 || r.PeakMemory > 72<<20) {
		c.Errorf("the peak under a limit of 64 MiB is %d bytes", r.PeakMemory)
	}
	if w, ok := driver.As[driver.Watcher](b); ok && caps.Boundary == driver.BoundaryGVisor {
		select {
		case <-w.Dead(): // the program was faster than the watchdog; see SECURITY.md
			b = c.box(small)
		default:
		}
	}
	c.exited(c.sh(b, "exit 4"), 4, "a modest program afterwards, in the same sandbox unless gVisor's kernel was killed")
	if r := c.sh(c.box(small), "exit 0"); r.OOMKills != 0 || r.Outcome != sandbar.Exited {
		c.Errorf("a modest program: %+v", r.Result)
	}
}

func cpusBite(c *C) {
	b := c.box(func(s *sandbar.Spec) { s.Limits.CPUs = 0.25 })
	r := c.sh(b, `work() { while :; do :; done; }; work & x=$!; work & y=$!; work & z=$!; sleep 4; kill $x $y $z; wait`)
	c.exited(r, 0, "a busy program")
	// The quota of one period may be used before the first throttling.
	if share := r.CPUTime.Seconds() / r.Duration.Seconds(); share > 0.25*1.5 {
		c.Errorf("a share of 0.25 was %.2f: %v in %v", share, r.CPUTime, r.Duration)
	}
}

// sharesBite runs two sandboxes with weights of 1 to 16 that keep all processors busy for the same
// time. The heavier must get clearly more. Both begin when both are ready. Each has a process on
// every processor, so that the result does not depend on how the kernel spreads processes.
func sharesBite(c *C) {
	const busy = `
import os, sys, time
r, w = os.pipe()
processors = os.sched_getaffinity(0)
for i in processors:
    if os.fork() == 0:
        os.sched_setaffinity(0, {i})
        end = float(os.read(r, 32))
        while time.time() < end: pass
        os._exit(0)
print("ready", flush=True)
seconds = float(sys.stdin.readline())
for i in processors: os.write(w, b"%032.6f" % (time.time() + seconds))
for i in processors: os.wait()`
	var ready sync.WaitGroup
	ready.Add(2)
	used := make([]float64, 2)
	var all sync.WaitGroup
	for i, shares := range []int64{2048, 128} {
		b := c.box(func(s *sandbar.Spec) {
			s.Limits.CPUShares = shares
			if c.d.Caps().Enforced.CPUs != sandbar.EnforcedNone {
				s.Limits.CPUs = float64(runtime.NumCPU()) // a virtual machine may have fewer processors otherwise
			}
		})
		in, feed := io.Pipe()
		isReady := sync.OnceFunc(ready.Done)
		p := c.start(b, sandbar.Cmd{Args: []string{c.s.python, "-c", busy}}, driver.Stdio{Stdin: in, Stdout: onWrite(isReady)})
		all.Go(func() {
			go func() {
				ready.Wait()
				seconds := 2
				if c.s.h.Slow {
					seconds = 4 // the time that a slow sandbox takes to start counts too
				}
				fmt.Fprintf(feed, "%d\n", seconds)
				feed.Close()
			}()
			res, err := c.waitFor(p)
			isReady() // a program that ended early must not block the other
			in.Close()
			if err != nil || res.Outcome != sandbar.Exited {
				c.Errorf("a busy program: %+v, %v", res, err)
			}
			used[i] = res.CPUTime.Seconds()
		})
	}
	all.Wait()
	if used[0] < 1.5*used[1] {
		c.Errorf("2,048 shares got %.2f s of processor time, 128 shares %.2f s", used[0], used[1])
	}
}

// onWrite is a Writer that is a function.
type onWrite func()

func (w onWrite) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func pidsBite(c *C) {
	b := c.box(func(s *sandbar.Spec) { s.Limits.PIDs = 32 })
	p, out := c.startSh(b, `i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); echo $i; done 2>&1; echo all`)
	done := make(chan struct{})
	go func() { p.Wait(); close(done) }()
	c.until(func() bool {
		select {
		case <-done:
			return true
		default:
			return out.has("all")() || out.has("ork")() // "Cannot fork", "fork: retry"
		}
	}, "the program meets its limit")
	started := 0
	for line := range strings.Lines(out.String()) {
		var n int
		if _, err := fmt.Sscanf(line, "%d\n", &n); err == nil {
			started = n
		}
	}
	if out.has("all")() || started > 32 || started < 8 {
		c.Errorf("under a limit of 32 a program started %d others: %s", started, sandbar.Quote(out.String(), 300))
	}
	if err := exec.CommandContext(c.ctx, "true").Run(); err != nil {
		c.Errorf("meanwhile the host cannot start a program: %v", err)
	}
	c.ok(p.Signal(9), "Signal")
	c.wait(p)
}

func diskBites(c *C) {
	b := c.box(func(s *sandbar.Spec) { s.Limits.Disk = 4 << 20 })
	r := c.sh(b, `head -c 2097152 /dev/zero > a && echo half; head -c 8388608 /dev/zero > b && echo survived; wc -c < b`)
	if !strings.HasPrefix(r.out, "half\n") || strings.Contains(r.out, "survived") {
		c.Errorf("2 MiB and then 8 MiB under a limit of 4 MiB: %v", r)
	}
	if !strings.Contains(r.errOut, "No space left") && !strings.Contains(r.errOut, "quota") {
		c.Errorf("the program gets no ENOSPC: %v", r)
	}
	c.exited(c.sh(b, "rm b; echo x > c"), 0, "writing again after something was removed")
	w, err := b.FS().Create(c.ctx, "big", sandbar.CreateOptions{})
	if err == nil {
		chunk := make([]byte, 1<<20)
		for range 8 {
			if _, err = w.Write(chunk); err != nil {
				break
			}
		}
		if err == nil {
			err = w.Commit()
		}
		w.Abort()
	}
	c.code(err, "writing 8 MiB through the file API", sandbar.NoSpace)
}

func inodesBite(c *C) {
	b := c.box(func(s *sandbar.Spec) { s.Limits.Inodes = 64 })
	r := c.sh(b, `i=0; while [ $i -lt 200 ]; do : > f$i || break; i=$((i+1)); done; echo $i`)
	var n int
	fmt.Sscanf(r.out, "%d", &n)
	// The sandbox itself uses some inodes.
	if n > 64 || n < 16 && r.out != "" {
		c.Errorf("under a limit of 64 a program made %d files: %v", n, r)
	}
	c.code(b.FS().Mkdir(c.ctx, "one-more", 0o755, false), "making a directory through the file API", sandbar.NoSpace)
}

func filesBite(c *C) {
	b := c.box(func(s *sandbar.Spec) { s.Limits.Files = 64 })
	r := c.py(b, `
import os, errno, resource
kept = []
try:
    while len(kept) < 500: kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e: print(errno.errorcode[e.errno])
print(len(kept) + 3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])`)
	if r.out != "EMFILE\n64 64\n" {
		c.Errorf("descriptors under a limit of 64: %v", r)
	}
}
