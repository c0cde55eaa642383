// Command bench measures the numbers in SPECIFICATION.md. It times a baseline in the same run, so
// that both see the same state of the machine. It marks a number that is out of bounds; the exit
// code is then 1.
//
//	make bench            all benchmarks
//	make bench ONLY=idle  those with "idle" in their names
//	make soak TIME=30m    a load test instead: see runSoak
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/agent"
)

// benchmark is one number of SPECIFICATION.md and how to measure it.
type benchmark struct {
	name    string
	promise string
	run     func(*lab) (measured, error)
}

// measured is one measured number and its bound.
type measured struct {
	value    string
	baseline string
	kept     bool
}

// benchmarks are in the order of SPECIFICATION.md.
func benchmarks() []benchmark {
	return []benchmark{
		{"cold-python", "one isolated Python costs at most 3 ms more than a bare one", coldPython},
		{"cold-python-bubblewrap", "no promise: the same in bubblewrap, for comparison", bubblewrapPython},
		{"true", "`true` in a fresh sandbox, create to destroyed: p50 at most 8 ms", coldTrue},
		{"true-once", "the same as the only program of the sandbox, in a slot: p50 at most 3 ms", onceTrue},
		{"true-bubblewrap", "no promise: the same in bubblewrap, for comparison", bubblewrapTrue},
		{"docker-python", "one cold Python in a container, create to destroyed: at most 1.1 × docker run", dockerPython},
		{"warm-python", "Python over Fathom from a ready sandbox: p50 at most 2 ms and 0.2 × bare, p99 at most 10 ms",
			warmed("python", 100, within{p50: 2 * time.Millisecond, p99: 10 * time.Millisecond, bare: 0.2})},
		{"warm-shell", "the same, shell: p50 at most 1.5 ms", warmed("shell", 100, within{p50: 1500 * time.Microsecond})},
		{"warm-javascript", "the same, JavaScript: p50 at most 5 ms", warmed("javascript", 60, within{p50: 5 * time.Millisecond})},
		{"warm-elixir", "the same, Elixir: p50 at most 10 ms", warmed("elixir", 30, within{p50: 10 * time.Millisecond})},
		{"warm-python-size", "a ready Python holds at most 3 MiB (PSS), its agent included", readyPythonSize},
		{"warm-python-imports", "importing numpy and pandas, imported ahead, adds at most 5 ms", warmImports},
		{"traces", "traces of all executions, a shell over Fathom and /run: p50 less than 1.03 × without", traceCost},
		{"sustained-python", "eight connections that never rest, Python: at least 2.5 × the rate and at most 0.5 × the processor time of bare programs",
			sustained("python", bounds{bare: 2.5, cpu: 0.5})},
		{"sustained-shell", "the same, shell: at least 0.3 × and 2.5 × the rate of bare ones and of those in bubblewrap, at most 4.5 × the processor time",
			sustained("shell", bounds{bare: 0.3, wrapped: 2.5, cpu: 4.5})},
		{"sustained-javascript", "the same, JavaScript: at most 1.2 × the processor time", sustained("javascript", bounds{cpu: 1.2})},
		{"sustained-empty", "no promise: the same with a handler that runs nothing, which is the part of the client and the protocol", sustainedEmpty},
		{"sustained-beside", "shell programs beside up to 1,000 live sandboxes: the rates are at most 10 % lower than beside one", besideLive},
		{"idle-daemon", "a daemon with its default ready sandboxes: at most 0.5 % of a processor", idleDaemon},
		{"burst-python", "100 Python programs at once: all results within 0.5 × the time of bare ones", burstOfPython},
		{"idle", "an idle sandbox holds at most 2 MiB (PSS)", idleSandbox},
		{"many", "one of 5,000 idle sandboxes costs the host at most 1.2 MiB, the kernel's memory included; their list takes at most 50 ms", manySandboxes},
		{"flood", "1 GiB of output to the cap grows the daemon by less than 64 MiB", flood},
		{"fathom-stream", "lines of output over Fathom: at least 0.25 of what a bare WebSocket carries", fathomStream},
		{"stop", "ending a tree that ignores TERM takes at most grace + 100 ms", stopTree},
		{"context", "`1+1` in a Python context over the control API: p50 at most 3 ms; 1,000 cells do not grow the interpreter", contextCells},
		{"mcp-code", "`1+1` by MCP's run_code in a warm context over HTTP: p50 at most 5 ms", mcpCode},
		{"sdk-python", "a request of the Python SDK: p50 at most 1 ms more than by httpx alone", sdkRequest("/usr/bin/python3", "sdk.py", 1)},
		{"sdk-typescript", "a request of the TypeScript SDK: p50 at most 0.5 ms more than by fetch alone", sdkRequest("/usr/bin/node", "sdk.mjs", 0.5)},
		{"watch", "a change of a file, to its event: p50 at most 5 ms", watchEvent},
		{"preview", "a request to a preview: p50 at most 1 ms more than to the server itself", previewRequest},
		{"console-ready", "the console's list of sandboxes, from the request of the page: p50 at most 300 ms", consoleReady},
		{"console-size", "all files of the console, as they are sent: at most 400 KiB", consoleSize},
		{"console-list", "1,000 live sandboxes listed, two changes a second: the browser and the daemon use at most 5 % of a processor", consoleList},
		{"terminal-echo", "a key, to its echo by a program at a terminal: p50 at most 1 ms", terminalEcho},
		{"terminal-output", "`cat` of 100 MB at a terminal: at least 50 MB/s", terminalOutput},
		{"executor-run", "/run of `true` over a kept connection: p50 at most 3 ms", executorRun},
		{"executor-sse", "at least 300 MB/s of output lines as events", executorSSE},
		{"executor-files", "at least 1 GB/s into and out of a sandbox", executorFiles},
		{"executor-proxy", "at least 0.9 of what direct loopback carries", executorProxy},
		{"executor-many", "200 connections at once are served", executorMany},
		{"stdio-shell", "a shell command over stdio: p50 at most 5 ms", stdioCommand("echo a | tr a b", "b\n", 5*time.Millisecond, "/bin/sh", "-c", "echo a | tr a b >&2")},
		{"stdio-javascript", "JavaScript over stdio, loaded: p50 at most 10 ms", stdioCommand("node -e 'console.log(6*7)'", "42\n", 10*time.Millisecond, "/usr/bin/node", "-e", "1")},
		{"stdio-python", "Python over stdio, loaded: p50 at most 120 ms", stdioCommand("python3 -c 'print(6*7)'", "42\n", 120*time.Millisecond, "/usr/bin/python3", "-c", "1")},
		{"stdio-start", "from the start of the stdio command to its first answer: p50 at most 300 ms", stdioStart},
		{"stdio-reset", "a reset of a full sandbox: p50 at most 5 ms", stdioReset},
		{"stdio-timeout", "a limit of 1 s is answered within 1.1 s, during any activity", stdioTimeout},
		{"v86-start", "from the start of the stdio command to a PC's first answer, booted before: p50 at most 1.5 s", machineStart},
		{"v86-echo", "a command in the PC: p50 at most 0.3 s", withMachine(machineEcho)},
		{"v86-reset", "a reset of the PC: p50 at most 0.7 s", withMachine(machineReset)},
		{"v86-idle", "an idle PC: at most 1 % of a processor", withMachine(machineIdle)},
		{"v86-memory", "an idle PC that has run programs holds at most its own memory and 300 MiB", withMachine(machineSize)},
		{"executor-stall", "two streams unread for a minute, 1 GB each, cost less than 64 MiB", executorStall},
		{"docker-ready", "one Python in a container that waits for it: p50 at most 10 ms", dockerReady},
		{"runc", "create, print with Python, destroy: at most 1.1 × `runc run`", runcRun},
		{"gvisor", "the same on gVisor: at most 1.1 × `runsc run`", runscRun},
		{"gvisor-ready", "one Python in a gVisor sandbox that waits for it: p50 at most 15 ms", runscReady},
		{"vm-create", "a machine from a snapshot: p50 at most 250 ms (60 with KVM) and 1.5 × bare qemu", withMachines(vmCreate)},
		{"vm-ready", "the same from a ready machine: p50 at most 20 ms (3 with KVM)", withMachines(vmReady)},
		{"vm-python", "Python in a ready machine, in which it waits: p50 at most 250 ms (10 with KVM)", withMachines(vmPython)},
		{"vm-true", "`true` in a live machine: p50 at most 10 ms", withMachines(vmTrue)},
		{"vm-files", "at least 30 MB/s into and out of a machine", withMachines(vmFiles)},
		{"vm-idle", "an idle machine holds at most 30 MiB (PSS), a ready one uses no processor", withMachines(vmIdle)},
		{"vm-burst", "50 machines at once are made, run `true` and are destroyed", withMachines(vmBurst)},
		{"vm-fork", "a machine of 512 MiB stands still at most 100 ms while it is forked", withMachines(vmFork)},
		{"vm-beside-gvisor", "no promise: create, and `true` in a live sandbox, with gVisor, for comparison", vmBesideGVisor},
		{"vm-beside-docker", "no promise: the same with Docker, for comparison", vmBesideDocker},
		{"e2b-create", "no promise: create from a ready sandbox by E2B's SDK of npm; the goal is a p50 of 5 ms beyond the SDK's own time", e2bCall("create", 5*time.Millisecond)},
		{"e2b-run", "no promise: commands.run('true') by the SDK; the goal is 5 ms beyond its own time", e2bCall("run", 5*time.Millisecond)},
		{"e2b-cell", "no promise: runCode('1+1') by the SDK; the goal is 3 ms beyond its own time", e2bCall("cell", 3*time.Millisecond)},
		{"e2b-files", "no promise: files of 256 MiB by the SDK; the goal is 500 MB/s, both ways", e2bFiles},
		{"e2b-idle", "the daemon with 1000 idle connections of the SDK holds at most 100 MiB", e2bIdle},
		{"kubernetes-ready", "a ready pod to the end of `true` in it: p50 at most 25 ms", onPods("kubernetes-ready")},
		{"kubernetes-ready-gvisor", "the same on gVisor: p50 at most 60 ms", onPods("kubernetes-ready-gvisor")},
		{"kubernetes-true", "`true` in a pod that is open: p50 at most 4 ms", onPods("kubernetes-true")},
		{"kubernetes-true-gvisor", "no promise: the same on gVisor", onPods("kubernetes-true-gvisor")},
		{"kubernetes-burst", "100 ready pods at once to the end of `true` in each: at most 1 s", onPods("kubernetes-burst")},
		{"iii-create", "sandbox::create of a pulled image: p50 at most 5 ms", iiiCreate},
		{"iii-cycle", "create, exec `true`, stop: p50 at most 10 ms", iiiCycle},
		{"iii-ready-create", "sandbox::create from a ready sandbox: p50 at most 1 ms", iiiReadyCreate},
		{"iii-ready-cycle", "create from a ready sandbox, exec `true`, stop: p50 at most 3 ms", iiiReadyCycle},
		{"iii-burst", "100 creates at once take at most 500 ms", iiiBurst},
		{"iii-idle", "300 idle sandboxes hold at most 2 MiB each, the daemon's part included", iiiIdle},
		{"iii-files", "at least 300 MB/s through channels, both ways", iiiFiles},
		{"iii-grep", "grep over 100,000 files takes at most twice as long as grep -r", iiiGrep},
	}
}

func main() {
	if agent.IsAgent() {
		agent.Main()
	}
	only := flag.String("only", os.Getenv("ONLY"), "run only benchmarks with this in their name")
	sandbar := flag.String("sandbar", "bin/sandbar", "the built command")
	image := flag.String("image", ".cache/images/debian.tar", "the image that \"make tools\" builds")
	soak := flag.Duration("soak", 0, "instead, load a daemon for this `time`, and report growth and unanswered requests")
	row, dir := flag.String("pods", "", "for the program itself: the `name` of a benchmark inside a cluster's network"), flag.String("cluster", "", "its `directory`")
	flag.Parse()
	if *row != "" {
		os.Exit(runPods(*row, *dir))
	}
	l := &lab{sandbar: *sandbar, image: *image}
	if *soak > 0 {
		os.Exit(runSoak(l, *soak))
	}
	code := runAll(*only, l)
	if l.cluster != nil {
		if err := l.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the cluster could not be stopped:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func runAll(only string, l *lab) int {
	code := 0
	for _, b := range benchmarks() {
		if !strings.Contains(b.name, only) {
			continue
		}
		m, err := b.run(l)
		verdict := "kept"
		switch {
		case err != nil:
			verdict, m.value, code = "FAILED", err.Error(), 1
		case strings.HasPrefix(b.promise, "no promise"):
			verdict = "-"
		case !m.kept:
			verdict, code = "MISSED", 1
		}
		fmt.Printf("%-24s %-7s %s\n%32s %s\n", b.name, verdict, m.value, "", b.promise)
		if m.baseline != "" {
			fmt.Printf("%32s baseline: %s\n", "", m.baseline)
		}
	}
	return code
}

// times is a sample of durations.
type times []time.Duration

// sample times f n times after some runs that do not count.
func sample(n int, f func() error) (times, error) {
	all, err := inTurn(n, noRest, f)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// interleave times two functions in turn, so that disturbances affect both.
func interleave(n int, f, g func() error) (a, b times, err error) {
	all, err := inTurn(n, noRest, f, g)
	if err != nil {
		return nil, nil, err
	}
	return all[0], all[1], nil
}

func noRest() error { return nil }

// inTurn times functions in turn, n times after some runs that do not count. An untimed rest
// follows each call.
func inTurn(n int, rest func() error, things ...func() error) ([]times, error) {
	out := make([]times, len(things))
	for i := range n + untimed {
		for k, f := range things {
			began := time.Now()
			if err := f(); err != nil {
				return nil, err
			}
			if i >= untimed {
				out[k] = append(out[k], time.Since(began))
			}
			if err := rest(); err != nil {
				return nil, err
			}
		}
	}
	sortTimes(out...)
	return out, nil
}

// untimed is the number of runs of inTurn that do not count.
const untimed = 3

func sortTimes(samples ...times) {
	for _, t := range samples {
		slices.Sort(t)
	}
}

func (t times) quantile(q float64) time.Duration { return t[int(q*float64(len(t)-1))] }

func (t times) String() string {
	return fmt.Sprintf("p50 %.2f ms, p90 %.2f ms (%d runs)", ms(t.quantile(0.5)), ms(t.quantile(0.9)), len(t))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
