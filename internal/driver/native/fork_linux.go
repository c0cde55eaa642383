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
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// fork is a sandbox with a copy of the template's interpreter, which waits for a program.
type fork struct {
	*client.Sandbox
	t           *template
	resources   *resources
	interpreter *client.Adopted
	profiles    bool // the copy prints its working set at its end

	mu        sync.Mutex
	conn      *net.UnixConn // to the interpreter; nil after Eval
	destroyed bool
}

var (
	_ driver.Evaluator = (*fork)(nil)
	_ driver.Dialer    = (*fork)(nil)
	_ driver.Watcher   = (*fork)(nil)
)

// Fork makes a sandbox with a copy of the template. See driver.Template.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	if t.once {
		f, err := t.forkOnce(ctx, id)
		switch {
		case err == nil:
			return f, nil
		case sandbar.CodeOf(err) != sandbar.Unsupported:
			return nil, err
		}
	}
	f, err := t.fork(ctx, id, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fork implements Fork. If profile is set, the copy prints its working set at its end.
func (t *template) fork(ctx context.Context, id sandbar.ID, profile bool) (*fork, error) {
	sandbox, b, err := t.d.create(ctx, id, t.spec, t.owner)
	if err != nil {
		return nil, err
	}
	f := &fork{Sandbox: sandbox, t: t, resources: b, profiles: profile}
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

// enter puts a copy of the template into the sandbox.
func (f *fork) enter(ctx context.Context, b *resources) error {
	attrs, ruleset, err := f.AdoptAttrs(ctx)
	if err != nil {
		return err
	}
	var held files
	defer held.close()
	var last *os.File
	if ruleset >= 0 {
		last = held.add(ruleset, "ruleset")
	}
	inside, err := held.namespaces(b.Init, slot.Namespaces())
	if err != nil {
		return err
	}
	request := f.t.request(b.uid(), attrs.Rlimits, wire.Rlimit{Resource: attrs.Resource, Soft: attrs.Tag, Hard: attrs.Tag})
	request.Profile, request.Nice = f.profiles, b.nice
	c, err := f.t.copy(ctx, request, b.Group, inside, last)
	if err != nil {
		return err
	}
	f.conn = c.conn
	f.interpreter, err = f.Adopt(ctx, wire.Adopt{PID: c.pid, Tag: attrs.Tag})
	return err
}

// request makes the request for a copy with a user, the limits of programs and a tag.
func (t *template) request(uid int, limits []wire.Rlimit, tag wire.Rlimit) python.ForkRequest {
	r := python.ForkRequest{Core: t.d.cookies, Ranged: t.d.IDs.Ranged, UID: uint32(uid), GID: uint32(uid)}
	for _, l := range append(slices.Clone(limits), tag) {
		r.Rlimits = append(r.Rlimits, python.Rlimit{Resource: l.Resource, Soft: l.Soft, Hard: l.Hard})
	}
	return r
}

// copied is a copy of a template's interpreter in a sandbox.
type copied struct {
	pid  uint32        // in the sandbox
	conn *net.UnixConn // to the interpreter
}

// copy makes a copy of the template, which joins the control group and the namespaces and, if
// ruleset is not nil, the Landlock domain. It returns when the copy waits for a program.
func (t *template) copy(ctx context.Context, r python.ForkRequest, group *cgroup.Group, namespaces []*os.File, ruleset *os.File) (c copied, err error) {
	var held files
	defer held.close()
	theirs, err := held.connect(&c.conn, "fork", unix.SOCK_STREAM)
	if err != nil {
		return c, err
	}
	defer func() {
		if err != nil {
			c.conn.Close()
		}
	}()
	passed := []*os.File{theirs}
	if group != nil {
		groups, err := group.JoinFiles()
		if err != nil {
			return c, err
		}
		held.list = append(held.list, groups...)
		passed, r.Cgroups = append(passed, groups...), len(groups)
	}
	passed, r.Namespaces = append(passed, namespaces...), len(namespaces)
	if r.Ruleset = ruleset != nil; r.Ruleset {
		passed = append(passed, ruleset)
	}
	if _, _, err := t.control.WriteMsgUnix(r.Append(nil), unix.UnixRights(fds(passed)...), nil); err != nil {
		return c, sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	// While the daemon holds the copy's end of the socket, await would not see end of file if the
	// copy dies.
	held.close()
	held.list = nil
	c.pid, err = c.await(ctx)
	return c, err
}

// await waits until the copy is ready, and returns its process id in the sandbox.
func (c *copied) await(ctx context.Context) (uint32, error) {
	buf := make([]byte, python.MaxReady)
	n, err := readWithin(ctx, c.conn, buf)
	if err != nil {
		if ctx.Err() != nil {
			return 0, sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for a copy of the template: %w", ctx.Err())
		}
		return 0, sandbar.Errorf(sandbar.Gone, "a copy of the template ended before it was ready: %w", err)
	}
	pid, failure, ok := python.ParseReady(buf[:n])
	switch {
	case !ok:
		return 0, sandbar.Errorf(sandbar.Internal, "a copy of the template sent an invalid message")
	case failure != "":
		return 0, sandbar.Errorf(sandbar.Internal, "a copy of the template could not enter its sandbox: %s", sandbar.Quote(failure, 200))
	}
	return pid, nil
}

// The interpreter writes the program's file itself if the code is at most maxCode bytes and the
// limits leave ample room: the disk limit at least codeDisk bytes, the inode limit codeFiles. A
// write that fails for lack of room could not be reported as NoSpace.
const (
	maxCode   = 32 << 10
	codeDisk  = 1 << 20
	codeFiles = 64
)

// writes reports whether the interpreter, and not the agent, writes a program of n bytes. It saves
// a round trip.
func (t *template) writes(n int) bool {
	l := t.spec.Limits
	return n <= maxCode && atLeast(l.Disk, codeDisk) && atLeast(l.Inodes, codeFiles)
}

// atLeast reports whether a limit is n or more, or none.
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
		return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "cancelled before the program started: %w", err)
	}
	run, err := f.t.evaluation(e)
	if err != nil {
		return nil, err
	}
	if f.t.writes(len(e.Code)) {
		run.Code = &e.Code
	} else if err := driver.WriteFile(ctx, f.FS(), f.t.file, []byte(e.Code)); err != nil {
		return nil, err
	}
	return f.interpreter.Begin(std, func(fds []int) error { return send(conn, run, fds) })
}

// send sends a program with its standard streams to a copy.
func send(conn *net.UnixConn, run python.Run, fds []int) error {
	message := run.Append(nil)
	n, _, err := conn.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	if err == nil && n < len(message) {
		_, err = conn.Write(message[n:])
	}
	if err != nil {
		return sandbar.Errorf(sandbar.Gone, "the interpreter has ended: %w", err)
	}
	return nil
}

// evaluation makes the message for the copy. It returns an error if the program needs a cold start.
func (t *template) evaluation(e driver.Evaluation) (python.Run, error) {
	lack := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: field, Message: "a warm interpreter cannot run this program: " + what, Fix: "start the program instead"}
	}
	r := python.Run{Args: append([]string{e.Path}, e.Args...)}
	if e.Dir != "" && path.Clean(e.Dir) != sandbar.DefaultDir {
		return r, lack("dir", "its working directory is another")
	}
	file := e.Path
	if !path.IsAbs(file) {
		file = path.Join(sandbar.DefaultDir, file)
	}
	if path.Clean(file) != t.file {
		return r, lack("path", "the interpreter was started for "+t.file)
	}
	for _, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			return r, &sandbar.Error{Code: sandbar.Invalid, Field: "args", Message: "an argument has a NUL"}
		}
	}
	if err := sandbar.CheckEnv(e.Env); err != nil {
		return r, err
	}
	env := merge(t.env, e.Env)
	for k, v := range e.Env {
		if slices.Contains(t.env, k+"="+v) {
			continue
		}
		if python.StartOnly(k) || slices.Contains(t.read, k) {
			return r, lack("env", "the variable "+sandbar.Quote(k, 40)+" is read as an interpreter starts")
		}
		r.Env = env
	}
	if n := len(strings.Join(r.Args, " ")) + len(strings.Join(r.Env, " ")); n > maxJob {
		return r, lack("args", "arguments and environment have "+strconv.Itoa(n)+" bytes")
	}
	return r, nil
}

// maxJob bounds arguments and environment, in bytes: with maxCode they fit into a socket's buffer,
// so that sending them does not block.
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
	return f.Sandbox.Destroy(ctx)
}

// coreScheduling reports whether the kernel has core scheduling and the processors have several
// hardware threads (core-scheduling.rst, Linux 5.14). It asks once for all forks: a refused request
// costs a fork 0.1 ms or more, because Python raises an exception and so writes to shared pages.
// PR_SCHED_CORE_GET without a place for the answer fails with EFAULT if it is supported.
func coreScheduling() bool {
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, 0)
	return err != unix.ENODEV && err != unix.EINVAL
}
