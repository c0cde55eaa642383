package escape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// rankCases are number 96: priorities for processors, disks and memory.
func rankCases() []Case {
	return []Case{
		{ID: "96-oom-score", Title: "be killed for memory after the neighbours and the daemon", Claim: Kernel, NeedsPython: true, Attack: oomScore},
		{ID: "96-scheduling", Title: "a better nice value, class or group of scheduling, for processors and disks", Claim: Kernel, Python: `
NR.update({"x86_64": dict(ioprio_set=251, sched_setattr=314), "aarch64": dict(ioprio_set=30, sched_setattr=274)}[os.uname().machine])
denied_as("the real-time class of disks", "ioprio_set", 1, 0, 1 << 13)
deadline = struct.pack("=IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 2 * 10**7, 2 * 10**7)
denied_as("the deadline class", "sched_setattr", 0, deadline, 0)
def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try: os.write(fd, text.encode())
    finally: os.close(fd)
for text in ["-20", "-1"]: attempt("a better autogroup", write, "/proc/self/autogroup", text)
attempt("the agent's autogroup", write, "/proc/1/autogroup", "19")
attempt("the agent's timer slack", write, "/proc/1/timerslack_ns", "1")
before = os.getpriority(os.PRIO_PROCESS, 0)
attempt("a better nice value", os.setpriority, os.PRIO_PROCESS, 0, before - 1)
done()`},
	}
}

// oomScore runs a program that lowers its oom_score_adj. It compares the result on the host with
// that of a neighbour and of this process.
func oomScore(ctx context.Context, s *Scene) error {
	usual, err := s.scores(ctx, "")
	if err != nil {
		return err
	}
	lowered, err := s.scores(ctx, `
def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try: os.write(fd, text.encode())
    finally: os.close(fd)
for file, steps in [("oom_adj", range(15, -18, -1)), ("oom_score_adj", range(1000, -1001, -20))]:
    for path in ["/proc/self/", "/proc/%d/" % os.getpid(), "/proc/self/task/%d/" % os.getpid()]:
        for n in steps:
            try: write(path + file, str(n))
            except OSError: pass
`)
	if err != nil {
		return err
	}
	own, err := score("self")
	if err != nil {
		return err
	}
	for _, n := range lowered {
		if n < own {
			s.Escape("the program's score is %d, and this process's %d", n, own)
		}
		for _, u := range usual {
			if n < u {
				s.Escape("the program's score is %d, and a neighbour's %d", n, u)
			}
		}
	}
	return nil
}

// scores runs a program in a new sandbox and returns the oom_score_adj of that sandbox's processes
// on the host. There are none if they have their own kernel.
func (s *Scene) scores(ctx context.Context, python string) ([]int, error) {
	box, err := s.Box(ctx)
	if err != nil {
		return nil, err
	}
	in, hold := io.Pipe()
	defer hold.Close()
	out := &limitedBuffer{}
	p, err := s.Begin(ctx, box, python+"\nsay('READY')\nsys.stdin.read()\ndone()", in, out)
	if err != nil {
		return nil, err
	}
	if err := awaitText(ctx, out, "READY"); err != nil {
		return nil, err
	}
	var all []int
	for _, pid := range carriers(s.token) {
		if n, err := score(strconv.Itoa(pid)); err == nil {
			all = append(all, n)
		}
	}
	hold.Close()
	res, err := wait(ctx, p)
	s.listen(out.String(), res)
	return all, errors.Join(err, box.Destroy(ctx))
}

// score reads the oom_score_adj of a process of the host.
func score(pid string) (int, error) {
	b, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("oom_score_adj of %s: %w", pid, err)
	}
	return n, nil
}
