package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// greetings are the programs of the warm benchmarks, and the commands of their baselines.
func greetings() map[string]struct {
	code string
	bare []string
} {
	return map[string]struct {
		code string
		bare []string
	}{
		"python":     {hello, []string{python, "-c", hello}},
		"shell":      {"echo hello world", []string{"/bin/sh", "-c", "echo hello world"}},
		"javascript": {"console.log('hello world')", []string{"node", "-e", "console.log('hello world')"}},
		"elixir":     {`IO.puts "hello world"`, []string{"elixir", "-e", `IO.puts "hello world"`}},
	}
}

// line is a Fathom connection for one execution at a time.
type line struct {
	c *websocket.Conn
	n int
}

func (d *daemon) dial(ctx context.Context) (*line, error) {
	c, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}, "X-Protocol-Version": {"1"}}})
	if err != nil {
		return nil, err
	}
	return &line{c: c}, nil
}

// connected calls work with a new daemon and one connection to it.
func connected(path string, work func(context.Context, *daemon, *line) (measured, error), env ...string) (measured, error) {
	d, err := startDaemon(path, append([]string{"SANDBAR_LOG_LEVEL=error"}, env...)...)
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := d.dial(ctx)
	if err != nil {
		return measured{}, err
	}
	defer c.c.CloseNow()
	return work(ctx, d, c)
}

// run runs a program, which must exit with 0, and returns its result.
func (l *line) run(ctx context.Context, language, code string) error {
	e, err := l.execute(ctx, request{Language: language, Code: code})
	switch {
	case err != nil:
		return err
	case e.code != "":
		return errors.New(e.code + ": " + e.message)
	case e.exit != 0:
		return fmt.Errorf("exit code %d: …%s", e.exit, bytes.TrimSpace(e.stderr[max(0, len(e.stderr)-200):]))
	}
	return nil
}

// request is an execution with its limits in the protocol's units; 0 is the default of the
// benchmarks.
type request struct {
	Language, Code  string
	TimeoutMS, Most int // Most is the output limit, in bytes
}

// ending is the end of an execution.
type ending struct {
	status        string // the last status
	code, message string // of the error; "" for none
	exit          int    // -1: none
	stdout        []byte
	stderr        []byte
}

// begin sends an execute message and returns its id.
func (l *line) begin(ctx context.Context, r request) (id string, err error) {
	l.n++
	id = strconv.Itoa(l.n)
	limits := map[string]any{"timeout_ms": cmp.Or(r.TimeoutMS, 60_000), "memory_mb": 256}
	if r.Most > 0 {
		limits["max_output_bytes"] = r.Most
	}
	return id, l.send(ctx, map[string]any{"type": "execute", "id": id, "language": r.Language, "code": r.Code, "limits": limits})
}

// send sends a message with the fields that every message has.
func (l *line) send(ctx context.Context, m map[string]any) error {
	m["v"], m["ts"] = 1, time.Now().UTC().Format(time.RFC3339Nano)
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return l.c.Write(ctx, websocket.MessageText, b)
}

// execute runs a program to its last message.
func (l *line) execute(ctx context.Context, r request) (ending, error) {
	id, err := l.begin(ctx, r)
	if err != nil {
		return ending{}, err
	}
	return l.follow(ctx, id, nil)
}

// follow reads up to the last message of the execution id. It calls first, if not nil, at the first
// output.
func (l *line) follow(ctx context.Context, id string, first func() error) (ending, error) {
	e := ending{exit: -1}
	for {
		_, b, err := l.c.Read(ctx)
		if err != nil {
			return e, err
		}
		var f struct {
			Type, ID, Status, Code, Message, Data string
			Exit                                  *int `json:"exit_code"`
		}
		if err := json.Unmarshal(b, &f); err != nil {
			return e, err
		}
		if f.ID != id {
			return e, fmt.Errorf("a message of %q where %q was asked for: %.200s", f.ID, id, b)
		}
		switch f.Type {
		case "status":
			e.status = f.Status
		case "stdout":
			e.stdout = append(e.stdout, f.Data...)
			if first != nil {
				if err := first(); err != nil {
					return e, err
				}
				first = nil
			}
		case "stderr":
			e.stderr = append(e.stderr, f.Data...)
		case "error":
			e.code, e.message = f.Code, f.Message
			if f.Code != "OUTPUT_LIMIT" { // the result follows this error
				return e, nil
			}
		case "result":
			if f.Exit != nil {
				e.exit = *f.Exit
			}
			return e, nil
		}
	}
}

// metrics reads all metrics of the daemon.
func (d *daemon) metrics() (map[string]float64, error) {
	req, err := http.NewRequest("GET", "http://"+d.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	all := map[string]float64{}
	scanner := bufio.NewScanner(r.Body)
	for scanner.Scan() {
		if name, value, ok := strings.Cut(scanner.Text(), " "); ok && name != "#" {
			if all[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, err
			}
		}
	}
	return all, scanner.Err()
}

// metric reads one metric of the daemon.
func (d *daemon) metric(name string) (float64, error) {
	all, err := d.metrics()
	v, ok := all[name]
	if err == nil && !ok {
		err = fmt.Errorf("no metric %s", name)
	}
	return v, err
}

// awaitReady waits until this number of sandboxes of a template are ready.
func (d *daemon) awaitReady(template string, n int) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ready, err := d.metric(`sandbar_template_ready{template="` + template + `"}`)
		if err != nil || int(ready) >= n {
			return err
		}
	}
	return fmt.Errorf("no %d sandboxes of %s became ready within 30 s", n, template)
}

// awaitRest waits until all wanted sandboxes of a template are ready and concurrent removals have
// ended. Making the next sandbox takes more processor time than an execution in a ready one, and
// with two processors it would be measured too. The sustained rates measure both together. It
// waits for no sandbox if no execution has asked for one: the driver then makes a sandbox faster
// than it would be taken.
func (d *daemon) awaitRest(template string) error {
	all, err := d.metrics()
	if err != nil {
		return err
	}
	of := func(name string) int { return int(all[name+`{template="`+template+`"}`]) }
	if of("sandbar_template_hits_total")+of("sandbar_template_misses_total") > 0 {
		err = d.awaitReady(template, max(1, of("sandbar_template_wanted")))
	}
	time.Sleep(20 * time.Millisecond)
	return err
}

// within are the bounds of warm executions; 0 is no bound.
type within struct {
	p50, p99 time.Duration
	bare     float64 // the ratio of p50 to that of the bare interpreter
}

func (w within) holds(ours, bare times) bool {
	return ours.quantile(0.5) <= w.p50 && (w.p99 == 0 || ours.quantile(0.99) <= w.p99) && (w.bare == 0 || ratio(ours, bare) <= w.bare)
}

// warmed is a benchmark of single executions over one connection, each in a ready sandbox of an
// idle daemon. The baseline is the bare interpreter.
func warmed(language string, n int, most within) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		g := greetings()[language]
		if _, err := exec.LookPath(g.bare[0]); err != nil {
			return measured{}, err
		}
		return connected(l.sandbar, func(ctx context.Context, d *daemon, c *line) (measured, error) {
			// The first executions, which do not count, cause the preparation of the template.
			all, err := inTurn(n, func() error { return d.awaitRest(language) },
				func() error { return c.run(ctx, language, g.code) }, command(g.bare[0], g.bare[1:]...))
			if err != nil {
				return measured{}, err
			}
			ours, bare := all[0], all[1]
			missed, err := d.metric(`sandbar_template_misses_total{template="` + language + `"}`)
			return measured{
				value:    fmt.Sprintf("%v; p99 %.2f ms; %.2f × bare; %d of %d cold", ours, ms(ours.quantile(0.99)), ratio(ours, bare), int(missed), n+untimed),
				baseline: "bare " + language + ": " + bare.String(),
				kept:     most.holds(ours, bare),
			}, err
		})
	}
}

// pace is what unrested measures.
type pace struct {
	all  times
	rate float64       // a second
	cpu  time.Duration // of all processors for one execution, without what the idle machine uses
}

func (p pace) String() string {
	if len(p.all) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.0f/s, %.1f ms of processor", p.rate, ms(p.cpu))
}

// unrested runs work on this many connections at once, each again as soon as it has ended. dial
// makes the connection of one worker.
func unrested(at int, period time.Duration, dial func() (work func() error, close func(), err error)) (p pace, err error) {
	idle := machineTime()
	time.Sleep(idleLook)
	idle = machineTime() - idle
	var wg sync.WaitGroup
	var mu sync.Mutex
	errs := make([]error, at)
	began := time.Now()
	used := machineTime()
	for i := range at {
		wg.Go(func() {
			work, done, err := dial()
			if err != nil {
				errs[i] = err
				return
			}
			defer done()
			for time.Since(began) < period && errs[i] == nil {
				asked := time.Now()
				errs[i] = work()
				mu.Lock()
				p.all = append(p.all, time.Since(asked))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	used = machineTime() - used - time.Duration(float64(idle)*took.Seconds()/idleLook.Seconds())
	slices.Sort(p.all)
	p.rate, p.cpu = float64(len(p.all))/took.Seconds(), used/time.Duration(max(1, len(p.all)))
	return p, errors.Join(errs...)
}

// idleLook is how long unrested measures the idle machine.
const idleLook = time.Second

// machineTime returns the time that all processors of this machine have worked, by /proc/stat.
func machineTime() (sum time.Duration) {
	b, _ := os.ReadFile("/proc/stat")
	words := strings.Fields(string(b[:max(0, bytes.IndexByte(b, '\n'))]))
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		if i < len(words) {
			n, _ := strconv.ParseInt(words[i], 10, 64)
			sum += time.Duration(n) * clockTick
		}
	}
	return sum
}

// unrestedBare is the baseline: the program alone and, if they are installed, in bubblewrap and in
// go-judge.
func unrestedBare(at int, language string) (bare, wrapped, judged pace, err error) {
	const period = 3 * time.Second
	argv := greetings()[language].bare
	measure := func(work func() error) (pace, error) {
		return unrested(at, period, func() (func() error, func(), error) { return work, func() {}, nil })
	}
	if bare, err = measure(command(argv[0], argv[1:]...)); err != nil {
		return bare, wrapped, judged, err
	}
	if bw, err := bubblewrap(argv...); err == nil { // it is only for comparison
		if wrapped, err = measure(bw); err != nil {
			return bare, wrapped, judged, err
		}
	}
	if work, stop, err := judge(argv); err == nil { // for comparison, too
		defer stop()
		judged, err = measure(work)
		return bare, wrapped, judged, err
	}
	return bare, wrapped, judged, nil
}

// bounds are those of a sustained rate, as ratios; 0 is no bound.
type bounds struct {
	bare, wrapped float64 // the rate to that of bare programs, and to that in bubblewrap
	cpu           float64 // the processor time to that of bare programs
}

func (b bounds) hold(ours, bare, wrapped pace) bool {
	return ours.rate >= b.bare*bare.rate && ours.rate >= b.wrapped*wrapped.rate && (b.cpu == 0 || float64(ours.cpu) <= b.cpu*float64(bare.cpu))
}

// workers is the number of connections of a sustained rate.
const workers = 8

// sustain measures connections that send the next request as soon as they have a result.
func (d *daemon) sustain(ctx context.Context, language string, period time.Duration) (pace, error) {
	return unrested(workers, period, func() (func() error, func(), error) {
		c, err := d.dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func() error { return c.run(ctx, language, greetings()[language].code) }, func() { c.c.CloseNow() }, nil
	})
}

// sustained is a benchmark of a sustained rate.
func sustained(language string, most bounds) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		if _, err := exec.LookPath(greetings()[language].bare[0]); err != nil {
			return measured{}, err
		}
		bare, wrapped, judged, err := unrestedBare(workers, language)
		if err != nil {
			return measured{}, err
		}
		return connected(l.sandbar, func(ctx context.Context, d *daemon, c *line) (measured, error) {
			// The first execution causes the preparation of the template, if the language has one.
			err := c.run(ctx, language, greetings()[language].code)
			if err == nil {
				err = d.awaitRest(language)
			}
			if err != nil {
				return measured{}, err
			}
			before := d.processor()
			ours, err := d.sustain(ctx, language, 10*time.Second)
			own := (d.processor() - before) / time.Duration(max(1, len(ours.all)))
			return measured{
				value: fmt.Sprintf("%v, of which the daemon takes %.1f; %.2f × the rate and %.2f × the processor time of bare programs; %v", ours,
					ms(own), ours.rate/bare.rate, float64(ours.cpu)/float64(bare.cpu), ours.all),
				baseline: fmt.Sprintf("%d at once: bare %s %v; in bubblewrap %v; in go-judge %v", workers, language, bare, wrapped, judged),
				kept:     most.hold(ours, bare, wrapped),
			}, err
		})
	}
}

// sustainedEmpty measures the client and the protocol alone: the handler runs nothing, and answers
// each execution at once with the messages of a program that prints a line.
func sustainedEmpty(*lab) (measured, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			var asked struct{ ID string }
			_, b, err := c.Read(r.Context())
			if err != nil || json.Unmarshal(b, &asked) != nil {
				return
			}
			for _, fields := range []string{`"type":"status","status":"running"`, `"type":"stdout","data":"hello world\n"`, `"type":"result","exit_code":0`} {
				if c.Write(r.Context(), websocket.MessageText, fmt.Appendf(nil, `{"v":1,"id":%q,%s}`, asked.ID, fields)) != nil {
					return
				}
			}
		}
	}))
	defer server.Close()
	empty, err := (&daemon{addr: server.Listener.Addr().String()}).sustain(context.Background(), "shell", 5*time.Second)
	return measured{value: fmt.Sprintf("%.0f/s, %.2f ms of processor", empty.rate, ms(empty.cpu))}, err
}

// besideLive measures the rate of shell programs beside long-lived sandboxes in which nothing runs.
func besideLive(l *lab) (measured, error) {
	return connected(l.sandbar, func(ctx context.Context, d *daemon, _ *line) (measured, error) {
		var said []string
		var first, slowest float64
		live := 0
		for _, n := range []int{1, 10, 100, 1000} {
			for ; live < n; live++ {
				if _, err := d.create(); err != nil {
					return measured{}, err
				}
			}
			time.Sleep(10 * time.Second) // until the kernel has done what the creations have left
			p, err := d.sustain(ctx, "shell", 5*time.Second)
			if err != nil {
				return measured{}, err
			}
			if n == 1 {
				first, slowest = p.rate, p.rate
			}
			slowest = min(slowest, p.rate)
			said = append(said, fmt.Sprintf("%d live: %v", n, p))
		}
		return measured{value: strings.Join(said, "; "), kept: slowest >= 0.9*first}, nil
	}, "SANDBAR_MAX_SANDBOXES=1100")
}

// idleDaemon measures the processor time of a daemon with its default ready sandboxes, and of all
// its processes, while nothing is asked of it.
func idleDaemon(l *lab) (measured, error) {
	return connected(l.sandbar, func(ctx context.Context, d *daemon, c *line) (measured, error) {
		const period = 20 * time.Second
		for _, language := range []string{"python", "javascript"} {
			if err := c.run(ctx, language, greetings()[language].code); err != nil {
				return measured{}, err
			}
			if err := d.awaitRest(language); err != nil {
				return measured{}, err
			}
		}
		time.Sleep(period) // their number is that of a busy minute before
		before := d.processorTimes()
		time.Sleep(period)
		var used time.Duration
		for pid, t := range d.processorTimes() {
			used += max(0, t-before[pid])
		}
		share := 100 * used.Seconds() / period.Seconds()
		return measured{value: fmt.Sprintf("%.2f %% of a processor", share), kept: share <= 0.5}, nil
	})
}

// processorTimes returns the processor times of the daemon and of its living descendants.
func (d *daemon) processorTimes() map[int]time.Duration {
	times := map[int]time.Duration{}
	all := family(d.cmd.Process.Pid)
	all[d.cmd.Process.Pid] = process{}
	for pid := range all {
		// The time that a thread ran, in nanoseconds (proc_pid_schedstat(5)).
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			if words := strings.Fields(string(b)); len(words) > 0 {
				n, _ := strconv.ParseInt(words[0], 10, 64)
				times[pid] += time.Duration(n)
			}
		}
	}
	return times
}

// burstOfPython runs a hundred executions at once on an idle daemon and, after each burst, a
// hundred bare interpreters.
func burstOfPython(l *lab) (measured, error) {
	const many, rounds = 100, 5
	return connected(l.sandbar, func(ctx context.Context, d *daemon, _ *line) (measured, error) {
		var lines [many]*line
		for i := range lines {
			c, err := d.dial(ctx)
			if err != nil {
				return measured{}, err
			}
			defer c.c.CloseNow()
			lines[i] = c
		}
		atOnce := func(run func(i int) error) func() error {
			return func() error {
				var wg sync.WaitGroup
				errs := make([]error, many)
				for i := range many {
					wg.Go(func() { errs[i] = run(i) })
				}
				wg.Wait()
				return errors.Join(errs...)
			}
		}
		interpreter := command(python, "-c", hello)
		rest := func() error {
			time.Sleep(2 * time.Second) // until the ready sandboxes of the last round exist
			return d.awaitReady("python", 2)
		}
		all, err := inTurn(rounds, rest, atOnce(func(i int) error { return lines[i].run(ctx, "python", hello) }),
			atOnce(func(int) error { return interpreter() }))
		if err != nil {
			return measured{}, err
		}
		return measured{value: fmt.Sprintf("all results: %v; %.2f × bare", all[0], ratio(all[0], all[1])),
			baseline: "100 bare interpreters: " + all[1].String(), kept: ratio(all[0], all[1]) <= 0.5}, nil
	})
}

// readyIII calls work with an iii engine that has ready sandboxes of template.
func readyIII(l *lab, work func(x *iiiLab, template string) (measured, error)) (measured, error) {
	x, err := startIII(l, "SANDBAR_TEMPLATES=auto")
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	template := "plain@docker.io/iiidev/python:latest"
	if x.image == "of the host" {
		template = "plain#2"
	}
	return work(x, template)
}

// iiiReadyCreate times creates from ready sandboxes.
func iiiReadyCreate(l *lab) (measured, error) {
	return readyIII(l, func(x *iiiLab, template string) (measured, error) {
		var made []string
		create := func() error {
			id, err := x.create(nil)
			made = append(made, id)
			return err
		}
		remove := func() (err error) {
			for _, id := range made {
				err = errors.Join(err, x.remove(id))
			}
			made = nil
			return errors.Join(err, x.awaitReady(template, 1))
		}
		all, err := inTurn(100, remove, create, bareTrue)
		if err != nil {
			return measured{}, err
		}
		return measured{value: all[0].String() + ", " + x.image, baseline: "bare true: " + all[1].String(), kept: all[0].quantile(0.5) <= time.Millisecond}, nil
	})
}

// iiiReadyCycle times the whole use of a ready sandbox: by a client with default options, and by
// one that waits until the sandbox is removed.
func iiiReadyCycle(l *lab) (measured, error) {
	return readyIII(l, func(x *iiiLab, template string) (measured, error) {
		rest := func() error { return x.awaitRest(template) }
		cycle := func(wait bool) func() error {
			return func() error {
				id, err := x.create(nil)
				if err != nil {
					return err
				}
				stop := object{"sandbox_id": id}
				if wait {
					stop["wait"] = true
				}
				return errors.Join(x.call("sandbox::exec", object{"sandbox_id": id, "cmd": "true"}, new(any)), x.call("sandbox::stop", stop, new(any)))
			}
		}
		all, err := inTurn(100, rest, cycle(false), cycle(true), bareTrue)
		if err != nil {
			return measured{}, err
		}
		return measured{value: fmt.Sprintf("%v; with a stop that waits: %v; %s", all[0], all[1], x.image),
			baseline: "bare true: " + all[2].String(), kept: all[0].quantile(0.5) <= 3*time.Millisecond}, nil
	})
}
