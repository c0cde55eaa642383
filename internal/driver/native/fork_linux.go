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

// fork is a sandbox with a copy of the template's interpreter, which waits for a program.
type fork struct {
	*client.Sandbox
	t           *template
	resources   *resources
	interpreter *client.Adopted
	holder      memoryHolder
	profiles    bool // the copy prints its working set at its end

	mu        sync.Mutex
	conn      *net.UnixConn // to the interpreter; nil after Eval
	destroyed bool
}

// memoryHolder is the second owner of the interpreter's memory (package python), if the fork has
// one. It is in the sandbox's control group and outside its PID namespace.
type memoryHolder struct {
	conn *net.UnixConn // the holder exits at its end of file, and closes the other end; nil: no holder
	once sync.Once
	gone chan struct{} // closed after release, when the memory is freed
}

var (
	_ driver.Evaluator = (*fork)(nil)
	_ driver.Dialer    = (*fork)(nil)
	_ driver.Watcher   = (*fork)(nil)
)

// Fork makes a sandbox with a copy of the template. See driver.Template.
func (t *template) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
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
	f := &fork{Sandbox: sandbox, t: t, resources: b, profiles: profile, holder: memoryHolder{gone: make(chan struct{})}}
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
	var passed, last []*os.File
	if ruleset >= 0 {
		last = append(last, held.add(ruleset, "ruleset"))
	}
	for _, conn := range []**net.UnixConn{&f.conn, &f.holder.conn} {
		theirs, err := held.connect(conn, "fork", unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		passed = append(passed, theirs)
	}
	request, joined, err := f.request(b, attrs, &held)
	if err != nil {
		return err
	}
	request.Ruleset = len(last) > 0
	passed = append(append(passed, joined...), last...)
	if _, _, err := f.t.control.WriteMsgUnix(request.Append(nil), unix.UnixRights(fds(passed)...), nil); err != nil {
		return sandbar.Errorf(sandbar.Gone, "the template has ended: %w", err)
	}
	// While the daemon holds the copy's ends of the sockets, await would not see end of file if the
	// copy dies.
	held.close()
	held.list = nil
	if err := f.await(ctx, b, attrs.Tag); err != nil {
		return err
	}
	if n := f.holders(); n > 0 {
		return b.allow(n)
	}
	return nil
}

// holders returns the number of memory holders in the sandbox's control group.
func (f *fork) holders() int {
	if f.t.holders {
		return 1
	}
	return 0
}

// request makes the request for a copy. joined are the files of the control groups and namespaces
// that the copy joins.
func (f *fork) request(b *resources, attrs wire.AdoptAttrs, held *files) (r python.ForkRequest, joined []*os.File, err error) {
	r = python.ForkRequest{Profile: f.profiles, Core: f.t.d.cookies, Ranged: f.t.d.IDs.Ranged, UID: uint32(b.uid()), GID: uint32(b.uid()), Nice: b.nice}
	for _, l := range attrs.Rlimits {
		r.Rlimits = append(r.Rlimits, python.Rlimit{Resource: l.Resource, Soft: l.Soft, Hard: l.Hard})
	}
	r.Rlimits = append(r.Rlimits, python.Rlimit{Resource: attrs.Resource, Soft: attrs.Tag, Hard: attrs.Tag})
	if b.Group != nil {
		groups, err := b.Group.JoinFiles()
		if err != nil {
			return r, nil, err
		}
		held.list = append(held.list, groups...)
		joined, r.Cgroups = groups, len(groups)
	}
	inside, err := held.namespaces(b.Init, namespaces())
	r.Namespaces = len(inside)
	return r, append(joined, inside...), err
}

// await waits until the copy is ready, and makes the agent adopt it.
func (f *fork) await(ctx context.Context, b *resources, tag uint64) error {
	buf := make([]byte, python.MaxReady)
	n, err := readWithin(ctx, f.conn, buf)
	if err != nil {
		if ctx.Err() != nil {
			return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for a copy of the template: %w", ctx.Err())
		}
		return sandbar.Errorf(sandbar.Gone, "a copy of the template ended before it was ready: %w", err)
	}
	pid, failure, ok := python.ParseReady(buf[:n])
	switch {
	case !ok:
		return sandbar.Errorf(sandbar.Internal, "a copy of the template sent an invalid message")
	case failure != "":
		return sandbar.Errorf(sandbar.Internal, "a copy of the template could not enter its sandbox: %s", sandbar.Quote(failure, 200))
	}
	f.interpreter, err = f.Adopt(ctx, wire.Adopt{PID: pid, Tag: tag})
	return err
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
	run, err := f.t.run(e)
	if err != nil {
		return nil, err
	}
	if f.t.writes(len(e.Code)) {
		run.Code = &e.Code
	} else if err := driver.WriteFile(ctx, f.FS(), f.t.file, []byte(e.Code)); err != nil {
		return nil, err
	}
	p, err := f.interpreter.Begin(std, func(fds []int) error {
		message := run.Append(nil)
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

// holdFor is how long the memory of a program is held after its end. Most sandboxes are destroyed
// earlier, which frees the memory; so freeing it seldom competes with the delivery of the result.
const holdFor = 100 * time.Millisecond

// freeMemoryLater frees the memory of the program if the sandbox outlives it by holdFor.
func (f *fork) freeMemoryLater() {
	<-f.interpreter.Done()
	time.AfterFunc(holdFor, func() {
		ctx, cancel := context.WithTimeout(context.Background(), sandboxes.UndoTimeout)
		defer cancel()
		if err := f.freeMemory(ctx); err != nil {
			f.t.d.Log.Error("the memory of a program that has ended was not freed", "sandbox", f.resources.ID, "error", err)
		}
	})
}

// Start starts another program. If the interpreter has ended, Start frees its memory first.
func (f *fork) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	select {
	case <-f.interpreter.Done():
		if err := f.freeMemory(ctx); err != nil {
			return nil, err
		}
	default:
	}
	return f.Sandbox.Start(ctx, c, std)
}

// freeMemory ends the memory holder and takes its process off the process limit.
func (f *fork) freeMemory(ctx context.Context) error {
	f.holder.release()
	if err := f.holder.wait(ctx); err != nil || f.holders() == 0 {
		return err
	}
	f.resources.Mu.Lock()
	defer f.resources.Mu.Unlock()
	return f.resources.allow(0)
}

// release makes the memory holder exit. It does not wait.
func (h *memoryHolder) release() {
	h.once.Do(func() {
		if h.conn == nil {
			close(h.gone)
			return
		}
		_ = h.conn.CloseWrite() // fails only if the holder has exited
		go func() {
			// The holder writes nothing. End of file: it has exited; a process closes its
			// descriptors after it has freed its memory.
			_, _ = h.conn.Read(make([]byte, 1))
			h.conn.Close()
			close(h.gone)
		}()
	})
}

// wait waits until a released holder has freed the memory.
func (h *memoryHolder) wait(ctx context.Context) error {
	select {
	case <-h.gone:
		return nil
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the memory of an interpreter to be freed: %w", ctx.Err())
	}
}

// run makes the message for the copy. It returns an error if the program needs a cold start.
func (t *template) run(e driver.Evaluation) (python.Run, error) {
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
	f.holder.release()
	if err := f.Sandbox.Destroy(ctx); err != nil {
		return err
	}
	return f.holder.wait(ctx)
}

// coreScheduling reports whether the kernel has core scheduling and the processors have several
// hardware threads (core-scheduling.rst, Linux 5.14). It asks once for all forks: a refused request
// costs a fork 0.1 ms or more, because Python raises an exception and so writes to shared pages.
// PR_SCHED_CORE_GET without a place for the answer fails with EFAULT if it is supported.
func coreScheduling() bool {
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, 0)
	return err != unix.ENODEV && err != unix.EINVAL
}
