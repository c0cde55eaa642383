package native

import (
	"context"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/spawn"
	"github.com/sandbar-dev/sandbar/internal/zygote"
)

// fork is a sandbox with an interpreter in it that waits.
type fork struct {
	*client.Sandbox
	t       *template
	init    *spawn.Child
	waiting *client.Adopted

	mu   sync.Mutex
	conn *net.UnixConn // to the interpreter; nil when it has been used
}

var (
	_ driver.Evaluator = (*fork)(nil)
	_ driver.Filer     = (*fork)(nil)
	_ driver.Dialer    = (*fork)(nil)
	_ driver.Watcher   = (*fork)(nil)
)

// Fork makes a sandbox and has the template put a copy of itself there.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	sandbox, b, err := t.d.create(ctx, id, t.spec, t.owner)
	if err != nil {
		return nil, err
	}
	f := &fork{Sandbox: sandbox, t: t, init: b.init}
	if err := f.populate(ctx, b); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if derr := f.Destroy(clean); derr != nil {
			t.d.log.Error("a fork that failed could not be removed", "sandbox", id, "error", derr)
		}
		return nil, err
	}
	return f, nil
}

// populate puts a copy into the sandbox.
func (f *fork) populate(ctx context.Context, b *box) error {
	lent, ruleset, err := f.Lend(ctx)
	if err != nil {
		return err
	}
	var held files
	defer held.close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		if ruleset >= 0 {
			unix.Close(ruleset)
		}
		return sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	ours, carry := held.add(pair[0], "fork"), []*os.File{held.add(pair[1], "fork")}
	var last []*os.File
	if ruleset >= 0 {
		last = append(last, held.add(ruleset, "ruleset"))
	}
	if f.conn, err = unixConn(ours); err != nil {
		return sandbar.Errorf(sandbar.Internal, "using a socket pair: %w", err)
	}
	order, rooms, err := f.order(b, lent, &held)
	if err != nil {
		return err
	}
	order.Ruleset = len(last) > 0
	carry = append(append(carry, rooms...), last...)
	if _, _, err := f.t.control.WriteMsgUnix(order.Append(nil), unix.UnixRights(fds(carry)...), nil); err != nil {
		return sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	// Else a copy that dies on its way would not be noticed.
	held.close()
	held.list = nil
	return f.await(ctx, b, lent.Mark)
}

// order makes the request for a copy, with the groups and namespaces that it
// enters.
func (f *fork) order(b *box, lent wire.Lent, held *files) (o zygote.Order, rooms []*os.File, err error) {
	o = zygote.Order{Ranged: f.t.d.ids.Ranged, UID: uint32(b.uid()), GID: uint32(b.uid()), Nice: b.nice}
	for _, r := range lent.Rlimits {
		o.Rlimits = append(o.Rlimits, zygote.Rlimit{Resource: r.Resource, Soft: r.Soft, Hard: r.Hard})
	}
	o.Rlimits = append(o.Rlimits, zygote.Rlimit{Resource: lent.Resource, Soft: lent.Mark, Hard: lent.Mark})
	if b.group != nil {
		doors, err := b.group.Doors()
		if err != nil {
			return o, nil, err
		}
		held.list = append(held.list, doors...)
		rooms, o.Doors = doors, len(doors)
	}
	inside, err := held.namespaces(b.init, namespaces())
	o.Namespaces = len(inside)
	return o, append(rooms, inside...), err
}

// await waits until the copy is ready and has the agent take it on.
func (f *fork) await(ctx context.Context, b *box, mark uint64) error {
	buf := make([]byte, zygote.MaxReady)
	n, err := readWithin(ctx, f.conn, buf)
	if err != nil {
		if ctx.Err() != nil {
			return sandbar.Errorf(contextCode(ctx), "waiting for a copy of the template: %w", ctx.Err())
		}
		return sandbar.Errorf(sandbar.Gone, "a copy of the template ended on its way: %w", err)
	}
	pid, failure, ok := zygote.ParseReady(buf[:n])
	switch {
	case !ok:
		return sandbar.Errorf(sandbar.Internal, "a copy of the template does not speak its protocol")
	case failure != "":
		return sandbar.Errorf(sandbar.Internal, "a copy of the template could not enter its sandbox: %s", sandbar.Quote(failure, 200))
	}
	f.waiting, err = f.Adopt(ctx, wire.Adopt{PID: pid, Mark: mark})
	return err
}

// Eval has the interpreter run a program.
func (f *fork) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	f.mu.Lock()
	conn := f.conn
	f.conn = nil
	f.mu.Unlock()
	if conn == nil {
		return nil, &sandbar.Error{Code: sandbar.Conflict, Message: "the interpreter of this sandbox has been used", Fix: "start the program instead"}
	}
	defer conn.Close()
	if err := ctx.Err(); err != nil {
		return nil, sandbar.Errorf(contextCode(ctx), "not begun: %w", err)
	}
	job, err := f.t.job(e)
	if err != nil {
		return nil, err
	}
	return f.waiting.Begin(std, func(fds []int) error {
		message := job.Append(nil)
		n, _, err := conn.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
		if err == nil && n < len(message) {
			_, err = conn.Write(message[n:])
		}
		if err != nil {
			return sandbar.Errorf(sandbar.Gone, "the interpreter has ended: %w", err)
		}
		return nil
	})
}

// job makes the message, or says why this program needs a start of its own.
func (t *template) job(e driver.Evaluation) (zygote.Job, error) {
	lack := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: field, Message: "a warm interpreter cannot run this program: " + what, Fix: "start the program instead"}
	}
	j := zygote.Job{Args: append([]string{e.Path}, e.Args...)}
	if e.Dir != "" && path.Clean(e.Dir) != sandbar.DefaultDir {
		return j, lack("dir", "its working directory is another")
	}
	file := e.Path
	if !path.IsAbs(file) {
		file = path.Join(sandbar.DefaultDir, file)
	}
	if path.Clean(file) != t.file {
		return j, lack("path", "the interpreter was started for "+t.file)
	}
	for _, arg := range j.Args {
		if strings.ContainsRune(arg, 0) {
			return j, &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "an argument has a NUL"}
		}
	}
	env := merge(t.env, e.Env)
	for k, v := range e.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return j, &sandbar.Error{Code: sandbar.Invalid, Field: "env",
				Message: "environment variable " + sandbar.Quote(k, 40) + ": a name is not empty and has no \"=\", and neither name nor value has a NUL"}
		}
		if slices.Contains(t.env, k+"="+v) {
			continue
		}
		if zygote.StartOnly(k) || slices.Contains(t.read, k) {
			return j, lack("env", "the variable "+sandbar.Quote(k, 40)+" is read as an interpreter starts")
		}
		j.Env = env
	}
	if n := len(strings.Join(j.Args, " ")) + len(strings.Join(j.Env, " ")); n > maxJob {
		return j, lack("args", "arguments and environment have "+strconv.Itoa(n)+" bytes")
	}
	return j, nil
}

// maxJob is what a socket takes at once, so that sending a job never waits.
const maxJob = 64 << 10

// Destroy removes the sandbox with the interpreter.
func (f *fork) Destroy(ctx context.Context) error {
	f.mu.Lock()
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
	f.mu.Unlock()
	return f.Sandbox.Destroy(ctx)
}
