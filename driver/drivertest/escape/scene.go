package escape

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Target is the driver under attack.
type Target struct {
	Driver driver.Driver
	// Spec is the Spec of every sandbox. A case's own limits override its limits. Limits that the
	// driver does not enforce must be Unlimited.
	Spec sandbar.Spec
	// Python is the name or path of a Python 3 with ctypes in the sandbox, "" for none.
	Python string
	// Fuzz is how long a case makes random system calls. Default: FuzzDefault.
	Fuzz time.Duration
	// WaitFactor multiplies the time that a case may take. Default: 1.
	WaitFactor int
	// Made, if set, is called with the id of every sandbox made.
	Made func(sandbar.ID)
}

// FuzzDefault is a short time: enough to find a missing boundary, not to search one for holes.
const FuzzDefault = 4 * time.Second

// fuzz returns how long random system calls are made.
func (t Target) fuzz() time.Duration { return cmp.Or(t.Fuzz, FuzzDefault) }

// Scene is one run of a case: the bait on the host, the sandboxes, and the observations.
type Scene struct {
	Target
	Case  Case
	Bait  *Bait
	token string // in the environment and the arguments of every program

	mu      sync.Mutex
	boxes   []driver.Sandbox
	escapes []string
	heard   strings.Builder // output of programs, for an inconclusive case
}

func newScene(t Target, c Case) (*Scene, error) {
	b, err := newBait()
	if err != nil {
		return nil, err
	}
	return &Scene{Target: t, Case: c, Bait: b, token: "escape-" + nonce()}, nil
}

func nonce() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Escape records an escape.
func (s *Scene) Escape(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.escapes = append(s.escapes, fmt.Sprintf(format, args...))
}

// Box makes a sandbox for the case.
func (s *Scene) Box(ctx context.Context) (driver.Sandbox, error) {
	spec := s.Spec
	spec.Limits = mergeLimits(spec.Limits, s.Case.Limits)
	if s.Case.NeedsOutbound {
		spec.Network = sandbar.NetworkOutbound
	}
	// If the attacked limit is not enforced, the Spec accepts that.
	spec.AllowDegraded = spec.AllowDegraded || !s.Case.Claim.Claimed(s.Driver.Caps())
	spec.Env = s.environment()
	id := sandbar.NewID()
	if s.Made != nil {
		s.Made(id)
	}
	box, err := s.Driver.Create(ctx, id, spec)
	if err != nil {
		return nil, fmt.Errorf("making the sandbox: %w", err)
	}
	s.mu.Lock()
	s.boxes = append(s.boxes, box)
	s.mu.Unlock()
	return box, nil
}

// environment returns the environment of every program of the case: the bait, the limits and the
// token. The sandbox and each program have it, so that a prestarted interpreter has it too.
func (s *Scene) environment() map[string]string {
	env := s.Bait.env()
	maps.Copy(env, s.Spec.Env)
	env["SANDBAR_ESCAPE"] = s.token
	if s.Driver.Caps().Boundary == driver.BoundaryVM {
		env["OWN_KERNEL"] = "1"
	}
	for name, v := range map[string]int64{"LIMIT_MEMORY": s.Case.Limits.Memory, "LIMIT_PIDS": s.Case.Limits.PIDs,
		"LIMIT_DISK": s.Case.Limits.Disk, "LIMIT_INODES": s.Case.Limits.Inodes, "LIMIT_FILES": s.Case.Limits.Files} {
		env[name] = strconv.FormatInt(v, 10)
	}
	env["FUZZ_SECONDS"] = strconv.FormatFloat(s.fuzz().Seconds(), 'f', -1, 64)
	return env
}

// mergeLimits returns l with the fields that are set in top.
func mergeLimits(l, top sandbar.Limits) sandbar.Limits {
	set := func(to *int64, v int64) {
		if v != 0 {
			*to = v
		}
	}
	set(&l.Memory, top.Memory)
	set(&l.PIDs, top.PIDs)
	set(&l.Disk, top.Disk)
	set(&l.Inodes, top.Inodes)
	set(&l.Files, top.Files)
	if top.CPUs != 0 {
		l.CPUs = top.CPUs
	}
	return l
}

// attack runs the case.
func (s *Scene) attack(ctx context.Context) error {
	if s.Case.Attack != nil {
		return s.Case.Attack(ctx, s)
	}
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	_, err = s.Program(ctx, box, s.Case.Python, s.Case.Shell)
	return err
}

// Program runs a program to its end and searches its output for an escape. It fails if the program
// did not print DONE (unless MayDie).
func (s *Scene) Program(ctx context.Context, box driver.Sandbox, python, shell string) (string, error) {
	out, errOut := &limitedBuffer{}, &limitedBuffer{}
	p, err := s.begin(ctx, box, python, shell, driver.Stdio{Stdout: out, Stderr: errOut})
	if err != nil {
		return "", err
	}
	res, err := wait(ctx, p)
	text := out.String() + "\n" + errOut.String()
	s.listen(text, res)
	if err != nil {
		return text, err
	}
	killed := res.Outcome == sandbar.Signaled || res.Outcome == sandbar.OutOfMemory || res.Outcome == sandbar.Lost
	if !strings.Contains("\n"+text, "\nDONE\n") && !(s.Case.MayDie && killed) {
		return text, errors.New("the program did not get to its end")
	}
	return text, nil
}

// Begin starts a program of a case in the background, with both outputs in out.
func (s *Scene) Begin(ctx context.Context, box driver.Sandbox, python string, in io.Reader, out io.Writer) (driver.Process, error) {
	return s.begin(ctx, box, python, "", driver.Stdio{Stdin: in, Stdout: out, Stderr: out})
}

// begin starts a program. Environment variables describe the bait (see Bait.env), and the token is
// in the arguments.
func (s *Scene) begin(ctx context.Context, box driver.Sandbox, python, shell string, std driver.Stdio) (driver.Process, error) {
	c := sandbar.Cmd{Args: []string{"sh", "-c", shell, s.token}, Env: s.environment()}
	if python != "" {
		c.Args = []string{s.Python, "-c", prelude + python, s.token}
	}
	p, err := box.Start(ctx, c, std)
	if err != nil {
		return nil, fmt.Errorf("starting the program: %w", err)
	}
	return p, nil
}

// listen searches a program's output for an escape.
func (s *Scene) listen(text string, res sandbar.Result) {
	if strings.Contains(text, s.Bait.Secret) {
		s.Escape("the program saw the secret of the bait")
	}
	for line := range strings.Lines(text) {
		if what, ok := strings.CutPrefix(line, "ESCAPED"); ok {
			s.Escape("the program printed:%s", sandbar.Quote(strings.TrimSpace(what), 200))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.heard, "%s\n(%v, exit code %d, signal %d)\n", text, res.Outcome, res.ExitCode, res.Signal)
}

// wait waits for the end of a program or of ctx. After the end of ctx, the sandbox's Destroy ends
// the program.
func wait(ctx context.Context, p driver.Process) (sandbar.Result, error) {
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
	case <-ctx.Done():
		return sandbar.Result{}, errors.New("the program went on beyond the bound of the case")
	}
}

// tearDown destroys the sandboxes and checks the host.
func (s *Scene) tearDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for _, b := range s.boxes {
		if err := b.Destroy(ctx); err != nil {
			errs = append(errs, fmt.Errorf("destroying the sandbox: %w", err))
		}
	}
	for _, pid := range survivors(s.token) {
		s.Escape("process %d outlived its sandbox", pid)
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
	for _, damage := range s.Bait.damage() {
		s.Escape("%s", damage)
	}
	return errors.Join(append(errs, s.Bait.close())...)
}

// survivalBound is how long the kernel may take to end a killed process.
const survivalBound = 3 * time.Second

// survivors returns the host's processes with the token that do not end within survivalBound.
func survivors(token string) []int {
	for end := time.Now().Add(survivalBound); ; time.Sleep(10 * time.Millisecond) {
		pids := carriers(token)
		if len(pids) == 0 || time.Now().After(end) {
			return pids
		}
	}
}

// nameSize is the length of a process name (comm), which is the end of the token.
const nameSize = 15

// carriers lists the host's processes, except this one, that have the token in their arguments or,
// if readable, in their environment, or its end as their name.
func carriers(token string) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			// Both are empty for a zombie.
			if b, err := os.ReadFile("/proc/" + e.Name() + "/" + file); err == nil && bytes.Contains(b, []byte(token)) {
				pids = append(pids, pid)
				break
			}
		}
		if name, err := os.ReadFile("/proc/" + e.Name() + "/comm"); err == nil && !slices.Contains(pids, pid) &&
			strings.TrimSpace(string(name)) == token[max(0, len(token)-nameSize):] && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombie reports whether a process is dead and not reaped. Such a process still has its name.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte(" "))
	return err != nil || bytes.HasPrefix(after, []byte("Z"))
}

// limitedBuffer keeps the first maxBuffered bytes of a program's output.
type limitedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// maxBuffered is enough for every program here except a fuzzing one, in bytes.
const maxBuffered = 256 << 10

func (c *limitedBuffer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf.Write(b[:min(len(b), max(0, maxBuffered-c.buf.Len()))])
	return len(b), nil
}

func (c *limitedBuffer) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}
