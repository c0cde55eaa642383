package drivertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// C is one running case. It collects failures before it passes them to package testing, because a
// known failure must not fail the test.
type C struct {
	s    *suite
	d    driver.Driver
	dir  string // the driver's runtime directory
	name string
	ctx  context.Context

	mu       sync.Mutex
	failures []string
	logs     []string
	cleanups []func()
}

// Errorf records a failure. It may be called from any goroutine.
func (c *C) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

// Fatalf records a failure and ends the case. Call it only in the case's own goroutine.
func (c *C) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Logf records a message for people.
func (c *C) Logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// Cleanup registers f to be called after the case, last first.
func (c *C) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

func (c *C) cleanUp() {
	for {
		c.mu.Lock()
		n := len(c.cleanups)
		if n == 0 {
			c.mu.Unlock()
			return
		}
		f := c.cleanups[n-1]
		c.cleanups = c.cleanups[:n-1]
		c.mu.Unlock()
		c.guard(f)
	}
}

func (c *C) failed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.failures, "\n")
}

// guard runs f in its own goroutine and gives up when the case's time is over. It then records the
// stacks of all goroutines.
func (c *C) guard(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				stack := make([]byte, 16<<10)
				c.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
			}
		}()
		f()
	}()
	select {
	case <-done:
	case <-time.After(c.s.caseBound() + 30*time.Second):
		stacks := make([]byte, 1<<20)
		c.Errorf("hangs; all goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// ok ends the case if err is not nil.
func (c *C) ok(err error, format string, args ...any) {
	if err != nil {
		c.Fatalf("%s: %v (code %q)", fmt.Sprintf(format, args...), err, sandbar.CodeOf(err))
	}
}

// code records a failure unless err has one of the codes.
func (c *C) code(err error, what string, codes ...sandbar.Code) {
	if err == nil {
		c.Errorf("%s: no error; want code %v", what, codes)
	} else if got := sandbar.CodeOf(err); !slices.Contains(codes, got) {
		c.Errorf("%s: error %v has code %q; want %v", what, err, got, codes)
	}
}

// variable is the environment variable with the suite's token. Every program has it, so the suite
// finds programs that outlive their sandbox.
const variable = "SANDBAR_DRIVERTEST"

func nonce() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newID makes a sandbox id and records it, to recognize traces of the sandbox.
func (c *C) newID() sandbar.ID {
	id := sandbar.NewID()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.ids[id] = true
	return id
}

// spec returns the Spec of the suite's sandboxes: a value for each limit that the driver enforces,
// Unlimited for the others.
func (c *C) spec() sandbar.Spec {
	e := c.d.Caps().Enforced
	held := func(by sandbar.Enforcement, v int64) int64 {
		if by == sandbar.EnforcedNone {
			return sandbar.Unlimited
		}
		return v
	}
	s := sandbar.Spec{
		Image:   sandbar.ImageHost,
		Network: sandbar.NetworkNone,
		Env:     map[string]string{variable: c.s.token},
		Limits: sandbar.Limits{
			Memory:    held(e.Memory, 512<<20),
			CPUs:      sandbar.Unlimited,
			CPUShares: held(e.CPUShares, 512),
			PIDs:      held(e.PIDs, 1024),
			Disk:      held(e.Disk, 256<<20),
			Inodes:    held(e.Inodes, 65536),
			Files:     held(e.Files, 1024),
			Timeout:   sandbar.Unlimited,
			Output:    sandbar.Unlimited,
		},
	}
	if c.s.h.Spec != nil {
		c.s.h.Spec(&s)
	}
	return s
}

// box makes a sandbox that is destroyed after the case.
func (c *C) box(change ...func(*sandbar.Spec)) driver.Sandbox {
	spec := c.spec()
	for _, f := range change {
		f(&spec)
	}
	b, err := c.d.Create(c.ctx, c.newID(), spec)
	c.ok(err, "Create")
	c.Cleanup(func() { c.destroy(b) })
	return b
}

// destroy destroys a sandbox. An error is a failure of the case.
func (c *C) destroy(b driver.Sandbox) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Destroy(ctx); err != nil {
		c.Errorf("Destroy: %v", err)
	}
}

// ran is the result of one program with its output.
type ran struct {
	sandbar.Result
	out, errOut string
}

// String returns all of it, for failure messages.
func (r ran) String() string {
	return fmt.Sprintf("%v, exit code %d, signal %d, stdout %s, stderr %s", r.Outcome, r.ExitCode, r.Signal,
		sandbar.Quote(r.out, 400), sandbar.Quote(r.errOut, 1000))
}

// sh runs a shell program to its end.
func (c *C) sh(b driver.Sandbox, script string) ran {
	return c.exec(b, sandbar.Cmd{Args: []string{"sh", "-c", script}}, nil)
}

// py runs a Python program to its end.
func (c *C) py(b driver.Sandbox, program string) ran {
	return c.exec(b, sandbar.Cmd{Args: []string{c.s.python, "-c", program}}, nil)
}

// exec runs a program to its end. If the program does not start, the case ends.
func (c *C) exec(b driver.Sandbox, cmd sandbar.Cmd, stdin io.Reader) ran {
	var out, errOut buffer
	p := c.start(b, cmd, driver.Stdio{Stdin: stdin, Stdout: &out, Stderr: &errOut})
	res := c.wait(p)
	r := ran{Result: res, out: out.String(), errOut: errOut.String()}
	c.counted(res, int64(len(r.out)), int64(len(r.errOut)))
	if out.twice || errOut.twice {
		c.Errorf("a writer was called concurrently")
	}
	return r
}

// counted records a failure if a result counts other bytes than were delivered. A driver may leave
// the counts 0; the engine then counts.
func (c *C) counted(res sandbar.Result, out, errOut int64) {
	if none := res.StdoutBytes == 0 && res.StderrBytes == 0; !none && (res.StdoutBytes != out || res.StderrBytes != errOut) {
		c.Errorf("the result counts %d and %d bytes of output, %d and %d were delivered", res.StdoutBytes, res.StderrBytes, out, errOut)
	}
}

// try is exec for a program that may not exist.
func (c *C) try(b driver.Sandbox, cmd sandbar.Cmd, std driver.Stdio) ran {
	var out, errOut buffer
	std.Stdout, std.Stderr = &out, &errOut
	p, err := b.Start(c.ctx, cmd, std)
	if err != nil {
		return ran{}
	}
	return ran{Result: c.wait(p), out: out.String(), errOut: errOut.String()}
}

// start starts a program. If the program does not start, the case ends.
func (c *C) start(b driver.Sandbox, cmd sandbar.Cmd, std driver.Stdio) driver.Process {
	p, err := b.Start(c.ctx, cmd, std)
	c.ok(err, "Start %s", sandbar.Quote(strings.Join(cmd.Args, " "), 200))
	return p
}

// startSh starts a shell program whose output goes to a buffer.
func (c *C) startSh(b driver.Sandbox, script string) (driver.Process, *buffer) {
	out := &buffer{}
	both := both{out}
	return c.start(b, sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: both, Stderr: both}), out
}

// waitBound is the largest time that a case waits for an event.
func (c *C) waitBound() time.Duration { return 6 * c.s.waitTimeout * c.s.waitFactor() }

// wait waits for a program's end. If there is none within waitBound, the case ends.
func (c *C) wait(p driver.Process) sandbar.Result {
	res, err := c.waitFor(p)
	c.ok(err, "Wait")
	return res
}

func (c *C) waitFor(p driver.Process) (sandbar.Result, error) {
	type end struct {
		res sandbar.Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		res, err := p.Wait()
		ended <- end{res, err}
	}()
	select {
	case e := <-ended:
		return e.res, e.err
	case <-time.After(c.waitBound()):
		return sandbar.Result{}, fmt.Errorf("the program has not ended after %v", c.waitBound())
	}
}

// exited records a failure unless the program exited with this code.
func (c *C) exited(r ran, code int, what string) {
	if r.Outcome != sandbar.Exited || r.ExitCode != code {
		c.Errorf("%s: got %v; want exit code %d", what, r, code)
	}
}

// until waits until cond holds. If it does not within waitBound, the case ends.
func (c *C) until(cond func() bool, format string, args ...any) {
	for end := time.Now().Add(c.waitBound()); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("never: %s", fmt.Sprintf(format, args...))
		}
	}
}

// buffer is a bytes.Buffer with one writer and concurrent readers. It detects concurrent calls of
// Write.
type buffer struct {
	writing sync.Mutex
	mu      sync.Mutex
	buf     bytes.Buffer
	twice   bool
}

func (b *buffer) Write(p []byte) (int, error) {
	if !b.writing.TryLock() {
		b.mu.Lock()
		b.twice = true
		b.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	defer b.writing.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// both writes two outputs into one buffer, perhaps at the same time.
type both struct{ b *buffer }

func (w both) Write(b []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.buf.Write(b)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// has returns a function that reports whether the buffer contains the text.
func (b *buffer) has(text string) func() bool {
	return func() bool { return strings.Contains(b.String(), text) }
}
