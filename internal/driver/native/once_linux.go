package native

import (
	"bytes"
	"context"
	"net"
	"os"
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
)

// onceFork is a sandbox of a slot with a copy of the template's interpreter, which waits for its
// one program.
type onceFork struct {
	*single
	driver.OneProgram
	t      *template
	pid    int          // of the interpreter in the sandbox
	before client.Usage // the counters before the program
	// single.run guards both
	conn   *net.UnixConn // to the interpreter; nil after Eval
	closed bool
}

var (
	_ driver.Sandbox   = (*onceFork)(nil)
	_ driver.Evaluator = (*onceFork)(nil)
	_ driver.Watcher   = (*onceFork)(nil)
)

// The limits that a fork in a slot needs: copyTasks processes while the copy enters, and room for
// the code, which the interpreter writes.
const (
	copyTasks   = 4
	maxOnceCode = 1 << 20 // bytes
)

// forkOnce makes a fork in a slot. Unsupported: the fork needs an agent.
func (t *template) forkOnce(ctx context.Context, id sandbar.ID) (*onceFork, error) {
	if l := t.spec.Limits; t.owner == 0 || !t.d.TakesOneShots(t.spec) || !atLeast(l.PIDs, copyTasks) || !t.fits(maxCode) {
		return nil, notForSlots()
	}
	if err := t.d.Registry.Claim(string(id)); err != nil {
		return nil, err
	}
	f := &onceFork{single: newSingle(t.d, id), t: t}
	err := f.begin(ctx)
	if err == nil {
		return f, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxes.UndoTimeout)
	defer cancel()
	if derr := f.Destroy(clean); derr != nil {
		t.d.Log.Error("a fork that failed could not be removed", "sandbox", id, "error", derr)
	}
	return nil, err
}

// fits reports whether the limits leave room for a program of n bytes.
func (t *template) fits(n int) bool {
	l := t.spec.Limits
	return n <= maxOnceCode && atLeast(l.Disk, codeDisk+int64(n)) && atLeast(l.Inodes, codeFiles)
}

// begin takes a slot and puts a copy of the template into its sandbox.
func (f *onceFork) begin(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			close(f.read)
		}
	}()
	x, fds, err := f.d.takeSlot(ctx, f.t.spec, f.t)
	if err != nil {
		return f.failed(ctx, err)
	}
	f.slot = x
	var held files
	defer held.close()
	for _, fd := range fds {
		held.add(fd, "namespace")
	}
	inside, ruleset := held.list, (*os.File)(nil)
	if n := len(slot.Namespaces()); len(inside) > n {
		inside, ruleset = inside[:n], inside[n]
	}
	last := len(f.slot.rlimits) - 1
	c, err := f.t.copy(ctx, f.t.request(sandboxUID, f.slot.rlimits[:last], f.slot.rlimits[last]), f.slot.Group, inside, ruleset)
	if err != nil {
		return err
	}
	f.conn, f.pid = c.conn, int(c.pid)
	if f.pidfd, err = f.slot.slot.Adopt(ctx, f.pid); err != nil {
		return f.failed(ctx, err)
	}
	if err := f.verify(); err != nil {
		return err
	}
	f.d.slots.worked()
	f.before = f.slot.usage()
	go f.follow(true)
	return nil
}

// verify returns an error if the copy differs from a program that the slot would have started.
func (f *onceFork) verify() error {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(f.pidfd))
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "looking at a copy of the template: %w", err)
	}
	ids := bytes.Fields(fieldOf(info, "NSpid:"))
	if len(ids) < 2 || string(ids[len(ids)-1]) != strconv.Itoa(f.pid) {
		return sandbar.Errorf(sandbar.Gone, "a copy of the template ended before it was ready")
	}
	status, err := os.ReadFile("/proc/" + string(ids[0]) + "/status")
	if err != nil {
		return sandbar.Errorf(sandbar.Gone, "a copy of the template ended before it was ready: %w", err)
	}
	uid, gid := f.slot.HostIDs(sandboxUID)
	if text := agent.ProgramMismatch(status, uint32(uid), uint32(gid), true); text != "" {
		return sandbar.Errorf(sandbar.Internal, "a copy of the template is not confined as programs are: %s", text)
	}
	return nil
}

// fieldOf returns the rest of a line that begins with name.
func fieldOf(text []byte, name string) []byte {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return rest
		}
	}
	return nil
}

// Eval implements driver.Evaluator.
func (f *onceFork) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	f.run.Lock()
	defer f.run.Unlock()
	conn := f.conn
	switch {
	case f.closed:
		return nil, sandbar.Errorf(sandbar.Gone, "the sandbox has been destroyed")
	case conn == nil:
		return nil, &sandbar.Error{Code: sandbar.Conflict, Message: "the interpreter of this sandbox has been used", Fix: "make another sandbox"}
	case f.over || f.Ended():
		return nil, sandbar.Errorf(sandbar.Gone, "the interpreter has ended")
	}
	f.conn = nil
	defer conn.Close()
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "cancelled before the program started: %w", err)
	}
	run, err := f.t.evaluation(e)
	if err != nil {
		return nil, err
	}
	if !f.t.fits(len(e.Code)) {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "the program is too large for a warm interpreter", Fix: "start the program instead"}
	}
	run.Code = &e.Code
	program, fds, err := client.NewDirect(std, f.options(f.before))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := send(conn, run, fds); err != nil {
		program.Abort()
		return nil, err
	}
	f.program = program
	program.Begin(f.pid)
	return program, nil
}

// Destroy implements driver.Sandbox. If the interpreter has ended by itself, its slot is used
// again.
func (f *onceFork) Destroy(ctx context.Context) error {
	f.run.Lock()
	f.closed = true
	if f.conn != nil {
		f.conn.Close() // ends an interpreter without a program
		f.conn = nil
	}
	f.run.Unlock()
	return f.single.Destroy(ctx)
}
