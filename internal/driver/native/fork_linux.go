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
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// fork is a sandbox with an interpreter in it that waits.
type fork struct {
	*client.Sandbox
	t         *template
	resources *resources
	waiting   *client.Adopted
	holder    memoryHolder
	profiles  bool

	mu        sync.Mutex
	conn      *net.UnixConn // to the interpreter; nil when it has been used
	destroyed bool
}

// keeper is the process that holds the interpreter's memory (package python), where
// there is one. It is outside the sandbox's namespace of processes and inside its
// control group.
type memoryHolder struct {
	conn *net.UnixConn // its end of file ends the keeper, whose end is this one's; nil: there is none
	once sync.Once
	gone chan struct{} // closed when it has given back what it held, after release
}

var (
	_ driver.Evaluator = (*fork)(nil)
	_ driver.Dialer    = (*fork)(nil)
	_ driver.Watcher   = (*fork)(nil)
)

// Fork makes a sandbox and has the template put a copy of itself there.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	f, err := t.fork(ctx, id, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fork is Fork, for a rehearsal too.
func (t *template) fork(ctx context.Context, id sandbar.ID, rehearse bool) (*fork, error) {
	sandbox, b, err := t.d.create(ctx, id, t.spec, t.owner)
	if err != nil {
		return nil, err
	}
	f := &fork{Sandbox: sandbox, t: t, resources: b, profiles: rehearse, holder: memoryHolder{gone: make(chan struct{})}}
	if err := f.enter(ctx, b); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxes.UndoTimeout)
		defer cancel()
		if derr := f.Destroy(clean); derr != nil {
			t.d.Log.Error("a fork that failed could not be removed", "sandbox", id, "error", derr)
		}
		return nil, err
	}
	return f, nil
}

// populate puts a copy into the sandbox.
func (f *fork) enter(ctx context.Context, b *resources) error {
	lent, ruleset, err := f.AdoptAttrs(ctx)
	if err != nil {
		return err
	}
	var held files
	defer held.close()
	var carry, last []*os.File
	if ruleset >= 0 {
		last = append(last, held.add(ruleset, "ruleset"))
	}
	for _, conn := range []**net.UnixConn{&f.conn, &f.holder.conn} {
		theirs, err := held.connect(conn, "fork", unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		carry = append(carry, theirs)
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
	if err := f.await(ctx, b, lent.Tag); err != nil {
		return err
	}
	if n := f.holders(); n > 0 {
		return b.allow(n)
	}
	return nil
}

// kept is how many processes the sandbox's group has for the interpreter besides it.
func (f *fork) holders() int {
	if f.t.holders {
		return 1
	}
	return 0
}

// order makes the request for a copy, with the groups and namespaces that it
// enters.
func (f *fork) order(b *resources, lent wire.AdoptAttrs, held *files) (o python.ForkRequest, rooms []*os.File, err error) {
	o = python.ForkRequest{Profile: f.profiles, Core: f.t.d.cookies, Ranged: f.t.d.IDs.Ranged, UID: uint32(b.uid()), GID: uint32(b.uid()), Nice: b.nice}
	for _, r := range lent.Rlimits {
		o.Rlimits = append(o.Rlimits, python.Rlimit{Resource: r.Resource, Soft: r.Soft, Hard: r.Hard})
	}
	o.Rlimits = append(o.Rlimits, python.Rlimit{Resource: lent.Resource, Soft: lent.Tag, Hard: lent.Tag})
	if b.Group != nil {
		doors, err := b.Group.JoinFiles()
		if err != nil {
			return o, nil, err
		}
		held.list = append(held.list, doors...)
		rooms, o.Cgroups = doors, len(doors)
	}
	inside, err := held.namespaces(b.Init, namespaces())
	o.Namespaces = len(inside)
	return o, append(rooms, inside...), err
}

// await waits until the copy is ready and has the agent take it on.
func (f *fork) await(ctx context.Context, b *resources, mark uint64) error {
	buf := make([]byte, python.MaxReady)
	n, err := readWithin(ctx, f.conn, buf)
	if err != nil {
		if ctx.Err() != nil {
			return sandbar.Errorf(contextCode(ctx), "waiting for a copy of the template: %w", ctx.Err())
		}
		return sandbar.Errorf(sandbar.Gone, "a copy of the template ended on its way: %w", err)
	}
	pid, failure, ok := python.ParseReady(buf[:n])
	switch {
	case !ok:
		return sandbar.Errorf(sandbar.Internal, "a copy of the template does not speak its protocol")
	case failure != "":
		return sandbar.Errorf(sandbar.Internal, "a copy of the template could not enter its sandbox: %s", sandbar.Quote(failure, 200))
	}
	f.waiting, err = f.Adopt(ctx, wire.Adopt{PID: pid, Tag: mark})
	return err
}

// What the interpreter can write itself, surely: a program that is no larger, to a
// disk that has room for many of it.
const (
	maxCode   = 32 << 10
	codeDisk  = 1 << 20
	codeFiles = 64
)

// writes reports whether the interpreter can write a program of n bytes, which saves
// the agent's doing so.
func (t *template) writes(n int) bool {
	l := t.spec.Limits
	return n <= maxCode && atLeast(l.Disk, codeDisk) && atLeast(l.Inodes, codeFiles)
}

// atLeast reports whether a limit leaves so much.
func atLeast(limit, n int64) bool { return limit <= 0 || limit >= n }

// Eval implements driver.Evaluator.
func (f *fork) Eval(ctx context.Context, e driver.Evaluation, std driver.Stdio) (driver.Process, error) {
	f.mu.Lock()
	conn, destroyed := f.conn, f.destroyed
	f.conn = nil
	f.mu.Unlock()
	if destroyed {
		return nil, sandbar.Errorf(sandbar.Gone, "the sandbox has been destroyed")
	}
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
	if f.t.writes(len(e.Code)) {
		job.Code = &e.Code
	} else if err := driver.WriteFile(ctx, f.FS(), f.t.file, []byte(e.Code)); err != nil {
		return nil, err
	}
	p, err := f.waiting.Begin(std, func(fds []int) error {
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
	if err == nil {
		go f.freeMemoryLater()
	}
	return p, err
}

// keepFor is how long the memory of a program is kept when that has ended. Most
// sandboxes are gone by then, and giving it back does not delay what was waited for.
const holdFor = 100 * time.Millisecond

// outlive has a sandbox that goes on without its program have its memory back.
func (f *fork) freeMemoryLater() {
	<-f.waiting.Done()
	time.AfterFunc(holdFor, func() {
		ctx, cancel := context.WithTimeout(context.Background(), sandboxes.UndoTimeout)
		defer cancel()
		if err := f.freeMemory(ctx); err != nil {
			f.t.d.Log.Error("a sandbox did not get the memory of its program back", "sandbox", f.resources.ID, "error", err)
		}
	})
}

// Start has what is left of the interpreter gone before another program.
func (f *fork) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	select {
	case <-f.waiting.Done():
		if err := f.freeMemory(ctx); err != nil {
			return nil, err
		}
	default:
	}
	return f.Sandbox.Start(ctx, c, std)
}

// giveBack ends the keeper, after which the sandbox may have no process more than
// any other.
func (f *fork) freeMemory(ctx context.Context) error {
	f.holder.release()
	if err := f.holder.wait(ctx); err != nil || f.holders() == 0 {
		return err
	}
	f.resources.Mu.Lock()
	defer f.resources.Mu.Unlock()
	return f.resources.allow(0)
}

// release begins the keeper's end.
func (k *memoryHolder) release() {
	k.once.Do(func() {
		if k.conn == nil {
			close(k.gone)
			return
		}
		_ = k.conn.CloseWrite() // an end that is closed has been told
		go func() {
			_, _ = k.conn.Read(make([]byte, 1)) // it writes nothing
			k.conn.Close()
			close(k.gone)
		}()
	})
}

// wait waits until a keeper that was released has given back what it held.
func (k *memoryHolder) wait(ctx context.Context) error {
	select {
	case <-k.gone:
		return nil
	case <-ctx.Done():
		return sandbar.Errorf(contextCode(ctx), "waiting for the end of an interpreter's keeper: %w", ctx.Err())
	}
}

// job makes the message, or says why this program needs a start of its own.
func (t *template) job(e driver.Evaluation) (python.Run, error) {
	lack := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: field, Message: "a warm interpreter cannot run this program: " + what, Fix: "start the program instead"}
	}
	j := python.Run{Args: append([]string{e.Path}, e.Args...)}
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
	if err := sandbar.CheckEnv(e.Env); err != nil {
		return j, err
	}
	env := merge(t.env, e.Env)
	for k, v := range e.Env {
		if slices.Contains(t.env, k+"="+v) {
			continue
		}
		if python.StartOnly(k) || slices.Contains(t.read, k) {
			return j, lack("env", "the variable "+sandbar.Quote(k, 40)+" is read as an interpreter starts")
		}
		j.Env = env
	}
	if n := len(strings.Join(j.Args, " ")) + len(strings.Join(j.Env, " ")); n > maxJob {
		return j, lack("args", "arguments and environment have "+strconv.Itoa(n)+" bytes")
	}
	return j, nil
}

// maxJob is what a socket takes at once, with a program, so that sending a job never waits.
const maxJob = 64 << 10

// Destroy removes the sandbox with the interpreter.
func (f *fork) Destroy(ctx context.Context) error {
	f.mu.Lock()
	f.destroyed = true
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
	f.mu.Unlock()
	f.holder.release()
	if err := f.Sandbox.Destroy(ctx); err != nil {
		return err
	}
	return f.holder.wait(ctx)
}

// coreScheduling reports whether the kernel has core scheduling and the processors
// have several hardware threads (core-scheduling.rst). A fork that asks in vain pays
// a tenth of a millisecond or more: Python makes an exception of the refusal, in
// memory that the fork does not have yet. The question for a cookie has no place for
// the answer, which is EFAULT where there is one.
func coreScheduling() bool {
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, 0)
	return err != unix.ENODEV && err != unix.EINVAL
}
