package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// lab is the common state of the benchmarks.
type lab struct {
	sandbar string // the command
	image   string // an archive of an image with Python; it may be missing

	cluster *cluster.Cluster // see kubernetes; nil until it is used
}

// python is the interpreter of sandboxes and of the baselines.
const python = "/usr/bin/python3"

// hello is the program of the Python benchmarks.
const hello = "print('hello world')"

// newDriver makes the native driver with the daemon's settings.
func newDriver() (*native.Driver, error) { return native.New(driver.Host{}, embedded.Binary()) }

// newEngine makes an engine with limits that every host enforces.
func newEngine(grace time.Duration) (*engine.Engine, error) {
	d, err := newDriver()
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{Driver: d, Grace: grace, AllowDegraded: true})
}

func closeEngine(e *engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return e.Shutdown(ctx)
}

func coldPython(*lab) (measured, error) {
	e, err := newEngine(time.Second)
	if err != nil {
		return measured{}, err
	}
	defer closeEngine(e)
	isolated := func() error {
		r, err := e.Run(context.Background(), sandbar.Job{Language: "python", Code: hello}, engine.Discard)
		return exited(r, err)
	}
	ours, bare, err := interleave(100, isolated, command(python, "-c", hello))
	if err != nil {
		return measured{}, err
	}
	cost := ours.quantile(0.5) - bare.quantile(0.5)
	return measured{
		value:    fmt.Sprintf("%+.2f ms; %v; %.2f × bare", ms(cost), ours, ratio(ours, bare)),
		baseline: "bare python3 -c: " + bare.String(),
		kept:     cost <= 3*time.Millisecond,
	}, nil
}

func ratio(a, b times) float64 { return float64(a.quantile(0.5)) / float64(b.quantile(0.5)) }

func exited(r sandbar.Result, err error) error {
	if err == nil && (r.Outcome != sandbar.Exited || r.ExitCode != 0) {
		err = fmt.Errorf("the program ended as %v, exit code %d", r.Outcome, r.ExitCode)
	}
	return err
}

// command returns a function that runs a program on the host. It has none of the variables that
// change how an interpreter starts, because programs in sandboxes have none: NODE_EXTRA_CA_CERTS
// alone doubles the time of node.
func command(name string, args ...string) func() error {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NODE_") || strings.HasPrefix(kv, "PYTHON") })
	return func() error {
		c := exec.Command(name, args...)
		c.Env = env
		return c.Run()
	}
}

// bubblewrap returns a function that runs a program in bubblewrap, with the same namespaces and
// file system view.
func bubblewrap(args ...string) (func() error, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, errors.New("bubblewrap is not installed; `make tools` installs it")
	}
	flags := []string{"--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	for _, l := range []string{"/bin", "/lib", "/lib64", "/sbin"} {
		if to, err := os.Readlink(l); err == nil {
			flags = append(flags, "--symlink", to, l)
		} else if _, err := os.Stat(l); err == nil {
			flags = append(flags, "--ro-bind", l, l)
		}
	}
	return command(path, append(append(flags, "--"), args...)...), nil
}

func bubblewrapPython(*lab) (measured, error) {
	bw, err := bubblewrap(python, "-c", hello)
	if err != nil {
		return measured{}, err
	}
	with, bare, err := interleave(50, bw, command(python, "-c", hello))
	if err != nil {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("%+.2f ms; %v", ms(with.quantile(0.5)-bare.quantile(0.5)), with),
		baseline: "bare python3 -c: " + bare.String(),
	}, nil
}

func coldTrue(*lab) (measured, error) {
	d, err := newDriver()
	if err != nil {
		return measured{}, err
	}
	defer d.Close()
	ours, bare, err := interleave(200, func() error { return trueIn(d) }, command("/usr/bin/true"))
	if err != nil {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("%v; %.1f × bare", ours, ratio(ours, bare)),
		baseline: "bare true: " + bare.String(),
		kept:     ours.quantile(0.5) <= 8*time.Millisecond,
	}, nil
}

// onceTrue measures `true` in a sandbox that the driver makes for this one program.
func onceTrue(*lab) (measured, error) {
	d, err := newDriver()
	if err != nil {
		return measured{}, err
	}
	defer d.Close()
	if !d.TakesOneShots(spec()) {
		return measured{}, errors.New("this host has no slots (sandbar doctor)")
	}
	ours, bare, err := interleave(200, func() error { return onlyTrueIn(d) }, command("/usr/bin/true"))
	return measured{
		value:    fmt.Sprintf("%v; %.1f × bare", ours, ratio(ours, bare)),
		baseline: "bare true: " + bare.String(),
		kept:     ours.quantile(0.5) <= 3*time.Millisecond,
	}, err
}

func onlyTrueIn(d driver.OneShotter) error {
	ctx := context.Background()
	box, p, err := d.RunOnce(ctx, sandbar.NewID(), spec(), driver.OneShot{Cmd: sandbar.Cmd{Args: []string{"true"}}}, driver.Stdio{})
	if err != nil {
		return err
	}
	r, err := p.Wait()
	return errors.Join(exited(r, err), box.Destroy(ctx))
}

// spec is the resolved form of an empty Spec.
func spec() sandbar.Spec {
	return sandbar.Spec{Image: sandbar.ImageHost, Network: sandbar.NetworkNone, AllowDegraded: true, Limits: sandbar.Limits{
		Memory: 256 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 128, Disk: 256 << 20, Inodes: 65536, Files: 1024}}
}

func trueIn(d driver.Driver) error {
	ctx := context.Background()
	box, err := d.Create(ctx, sandbar.NewID(), spec())
	if err != nil {
		return err
	}
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
	if err != nil {
		return errors.Join(err, box.Destroy(ctx))
	}
	r, err := p.Wait()
	return errors.Join(exited(r, err), box.Destroy(ctx))
}

func bubblewrapTrue(*lab) (measured, error) {
	bw, err := bubblewrap("true")
	if err != nil {
		return measured{}, err
	}
	with, err := sample(100, bw)
	if err != nil {
		return measured{}, err
	}
	return measured{value: with.String()}, nil
}

// idleSandbox measures a sandbox among others. All agents share their program's memory, which would
// be charged to a single sandbox in full.
func idleSandbox(*lab) (measured, error) {
	d, err := newDriver()
	if err != nil {
		return measured{}, err
	}
	defer d.Close()
	one, err := idlePSS(d, 1)
	if err != nil {
		return measured{}, err
	}
	many, err := idlePSS(d, 50)
	if err != nil {
		return measured{}, err
	}
	return measured{
		value: fmt.Sprintf("%.2f MiB each of 50; %.2f MiB alone, with all of the agent's program", mib(many), mib(one)),
		kept:  many <= 2<<20,
	}, nil
}

// idlePSS is the proportional set size of each of n idle sandboxes that have run a program.
func idlePSS(d *native.Driver, n int) (int64, error) {
	ctx := context.Background()
	var boxes []driver.Sandbox
	defer func() {
		for _, b := range boxes {
			b.Destroy(ctx)
		}
	}()
	for range n {
		b, err := d.Create(ctx, sandbar.NewID(), spec())
		if err != nil {
			return 0, err
		}
		boxes = append(boxes, b)
		p, err := b.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
		if err != nil {
			return 0, err
		}
		p.Wait()
	}
	time.Sleep(2 * time.Second) // until the agents have settled
	var sum int64
	pids, err := agentsOf(os.Getpid())
	if err != nil {
		return 0, err
	}
	if len(pids) != n {
		return 0, fmt.Errorf("found %d agents of %d sandboxes", len(pids), n)
	}
	for _, pid := range pids {
		sum += field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	return sum / int64(n), nil
}

// agentsOf lists the agents of the daemon pid, which are the children of its spawner.
func agentsOf(pid int) (agents []int, err error) {
	spawners, err := childrenOf(pid)
	for _, s := range spawners {
		of, cerr := childrenOf(s)
		agents, err = append(agents, of...), errors.Join(err, cerr)
	}
	return agents, err
}

// childrenOf lists the child processes of a process.
func childrenOf(pid int) (out []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	for _, f := range files {
		if field(f, "PPid:")>>10 == int64(pid) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			out = append(out, n)
		}
	}
	return out, err
}

// field reads a kB value from a file of /proc, in bytes.
func field(path, key string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if w := strings.Fields(s.Text()); len(w) > 1 && w[0] == key {
			n, _ := strconv.ParseInt(w[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// stubborn is a process tree in two sessions that ignores all signals that can be ignored.
const stubborn = `trap '' TERM HUP INT
(setsid sh -c 'trap "" TERM HUP INT; sleep 1000' &)
sleep 1000 & while :; do sleep 1000; done`

func stopTree(*lab) (measured, error) {
	const grace, limit = 200 * time.Millisecond, 300 * time.Millisecond
	e, err := newEngine(grace)
	if err != nil {
		return measured{}, err
	}
	defer closeEngine(e)
	var over times
	for range 20 {
		var began time.Time
		r, err := e.Run(context.Background(), sandbar.Job{Language: "shell", Code: stubborn,
			Spec: sandbar.Spec{Limits: sandbar.Limits{Timeout: limit}}}, startSink{&began})
		if err != nil {
			return measured{}, err
		}
		if r.Outcome != sandbar.TimedOut {
			return measured{}, fmt.Errorf("the program ended as %v", r.Outcome)
		}
		over = append(over, time.Since(began)-limit)
	}
	worst := over[0]
	for _, d := range over {
		worst = max(worst, d)
	}
	return measured{
		value: fmt.Sprintf("grace + %.1f ms at worst (grace %v, %d runs)", ms(worst-grace), grace, len(over)),
		kept:  worst <= grace+100*time.Millisecond,
	}, nil
}

// startSink records when the program started.
type startSink struct{ at *time.Time }

func (s startSink) Started()                   { *s.at = time.Now() }
func (s startSink) Output(sandbar.Chunk) error { return nil }

// flood runs the daemon with programs that write without end, and a client that reads everything.
func flood(l *lab) (measured, error) {
	const size = 1 << 30
	d, err := startDaemon(l.sandbar, "SANDBAR_LIMITS_MAX_OUTPUT=1GiB")
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	// A first small run allocates what all runs share; it is not measured.
	if _, err := d.execute("head -c 1000000 /dev/zero | tr '\\0' x", 2<<20); err != nil {
		return measured{}, err
	}
	before := field(d.status(), "VmRSS:")
	began := time.Now()
	n, err := d.execute("head -c 2000000000 /dev/zero | tr '\\0' x", size)
	if err != nil {
		return measured{}, err
	}
	took := time.Since(began)
	grown := field(d.status(), "VmHWM:") - before
	if n != size {
		return measured{}, fmt.Errorf("%d bytes arrived, want exactly %d", n, size)
	}
	return measured{
		value: fmt.Sprintf("%+.1f MiB at its highest; %.0f MiB/s to a client that decodes JSON", mib(grown), mib(size)/took.Seconds()),
		kept:  grown < 64<<20,
	}, nil
}

// daemon is a running `sandbar serve`.
type daemon struct {
	cmd   *exec.Cmd
	addr  string
	dir   string
	token string
}

func startDaemon(path string, env ...string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return nil, err
	}
	return startDaemonIn(path, dir, env...)
}

// startDaemonIn starts a daemon with all its files in dir. The end of the daemon removes dir.
func startDaemonIn(path, dir string, env ...string) (*daemon, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &daemon{addr: addr, dir: dir, token: "bench"}
	d.cmd = exec.Command(path, "serve", "--listen", addr)
	d.cmd.Env = append(append(os.Environ(), "SANDBAR_TOKEN="+d.token,
		"SANDBAR_STATE_DIR="+dir+"/state", "SANDBAR_RUNTIME_DIR="+dir+"/run"), env...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get("http://" + addr + "/health"); err == nil {
			r.Body.Close()
			return d, nil
		}
	}
	d.stop()
	return nil, errors.New("the daemon did not answer within 20 s")
}

// freeAddress returns a free loopback address.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (d *daemon) stop() {
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.cmd.Wait()
	os.RemoveAll(d.dir)
}

func (d *daemon) status() string { return fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid) }

// execute runs shell code over Fathom and returns the number of bytes of its output.
func (d *daemon) execute(code string, limit int64) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}, "X-Protocol-Version": {"1"}}})
	if err != nil {
		return 0, err
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	m, err := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": "x", "ts": time.Now().UTC().Format(time.RFC3339Nano),
		"language": "shell", "code": code,
		"limits": map[string]any{"timeout_ms": 300_000, "memory_mb": 256, "max_output_bytes": limit}})
	if err != nil {
		return 0, err
	}
	if err := c.Write(ctx, websocket.MessageText, m); err != nil {
		return 0, err
	}
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			return n, err
		}
		var f struct{ Type, Data, Code, Message string }
		if err := json.Unmarshal(b, &f); err != nil {
			return n, err
		}
		switch {
		case f.Type == "result":
			return n, nil
		case f.Type == "error" && f.Code != "OUTPUT_LIMIT":
			return n, errors.New(f.Code + ": " + f.Message)
		case f.Type == "stdout":
			n += int64(len(f.Data))
		}
	}
}
