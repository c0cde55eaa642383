package native

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// A template is a Python interpreter that waits to be copied into sandboxes
// (package python). A fork is an ordinary sandbox, made as Create makes it, and a
// copy that enters it before anything else runs there; so it has what every
// sandbox has. To enter, the copy must have power over the sandbox's user namespace.
// Where the daemon is root the template is a user of its own, without any
// capability, who is the owner of the user namespaces of its forks and of nothing
// else, and lives in the other namespaces of a sandbox of its own, its home. Under an
// ordinary user's daemon it is that user, confined by its filter only.

// templateUID is the template's user, as its home numbers it.
const templateUID = 2000

// templateScore is that of programs in oom_score_adj: what the daemon gives
// agents, and what they add for programs.
const templateScore = "600"

// What a home may write. Nothing there does.
const (
	homeDisk   = 1 << 20
	homeInodes = 256
)

// template is a prepared template.
type template struct {
	d       *Driver
	spec    sandbar.Spec
	file    string   // the program's, absolute
	env     []string // of every program, unless its job says otherwise
	read    []string // variables that matter while modules are imported
	holders bool     // copies have keepers
	owner   int      // who owns the user namespaces of forks; 0: the daemon

	home     *resources      // nil: it has none
	sandbox  *client.Sandbox // the home's
	launcher *os.Process     // the parent of the interpreter
	control  *net.UnixConn
	dead     chan struct{} // closed when launcher has been waited for

	closing sync.Mutex
	closed  bool
}

var (
	_ driver.Templater = (*Driver)(nil)
	_ driver.Template  = (*template)(nil)
)

// Prepare starts an interpreter to be copied. It knows Python, with the host's
// own programs.
func (d *Driver) Prepare(ctx context.Context, s driver.TemplateSpec) (driver.Template, error) {
	if err := d.refuseTemplate(s); err != nil {
		return nil, err
	}
	t, err := d.prepare(ctx, s)
	if errors.Is(err, errInterpreterEnded) {
		// It may have been killed, which says nothing of what it can do. Twice in
		// a row it says enough.
		d.Log.Warn("the interpreter of a template ended; it is started once more", "error", err)
		t, err = d.prepare(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// errInterpreterEnded is the cause where an interpreter ended before it was ready.
var errInterpreterEnded = errors.New("it ended")

// prepare is Prepare with one interpreter, of what is not refused.
func (d *Driver) prepare(ctx context.Context, s driver.TemplateSpec) (*template, error) {
	t := &template{d: d, spec: s.Spec, file: path.Join(sandbar.DefaultDir, s.File),
		env: merge(hostenv.HostEnvironment("user", s.Spec.Env), s.Env), dead: make(chan struct{})}
	err := t.makeHome(ctx)
	if err == nil {
		err = t.start(s.Argv)
	}
	if err == nil {
		err = t.configure(ctx, s.Imports)
	}
	if err == nil {
		err = t.profile(ctx, s.Imports)
	}
	if err != nil {
		if cerr := t.Close(); cerr != nil {
			d.Log.Error("a template that failed could not be removed", "error", cerr)
		}
		return nil, err
	}
	return t, nil
}

// refuseTemplate returns an error if s cannot be prepared here.
func (d *Driver) refuseTemplate(s driver.TemplateSpec) error {
	lack := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: field, Message: "the native driver cannot prepare this template: " + what}
	}
	switch {
	case s.Language != "python":
		return lack("language", "it copies Python only")
	case len(s.Argv) != 1 || s.File == "" || path.IsAbs(s.File):
		return lack("command", "the interpreter is to be started on a file in "+sandbar.DefaultDir+", without options")
	case s.Spec.Image != "" && s.Spec.Image != sandbar.ImageHost:
		return lack("image", "it copies interpreters of the image \""+sandbar.ImageHost+"\" only")
	case os.Geteuid() == 0 && !d.IDs.Ranged:
		return lack("", "the daemon is root but may not give out ids, so that a template would be root itself")
	case d.mode != agent.ModeSocket:
		return lack("", "descriptors cannot be passed to its sandboxes")
	}
	return d.refuse(s.Spec)
}

// settle makes the template's home, where the daemon can give it one.
func (t *template) makeHome(ctx context.Context) error {
	if !t.d.IDs.Ranged {
		return nil
	}
	home := t.spec
	home.Network, home.Env = sandbar.NetworkNone, nil
	home.Limits = sandbar.Limits{Memory: sandbar.Unlimited, CPUs: sandbar.Unlimited, CPUShares: sandbar.Unlimited, PIDs: sandbar.Unlimited,
		Disk: homeDisk, Inodes: homeInodes, Files: t.spec.Limits.Files}
	sandbox, b, err := t.d.create(ctx, sandbar.NewID(), home, 0)
	if err != nil {
		return err
	}
	t.home, t.sandbox = b, sandbox
	t.owner = b.Range.First + templateUID
	return nil
}

// start starts the launcher, with all that it and the interpreter inherit.
func (t *template) start(argv []string) (err error) {
	var held files
	defer held.close()
	theirs, err := held.connect(&t.control, "template", unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	streams, err := held.streams()
	if err != nil {
		return err
	}
	archive, err := held.memory("sandbar-template", python.Archive())
	if err != nil {
		return err
	}
	if err := t.putArchive(); err != nil {
		return err
	}
	rooms, err := t.homeNamespaces(&held)
	if err != nil {
		return err
	}
	launch, err := t.launch(argv, len(rooms))
	if err != nil {
		return err
	}
	plan, err := held.memory("sandbar-plan", launch)
	if err != nil {
		return err
	}
	return t.spawn(append([]*os.File{streams[0], streams[1], streams[1], theirs, archive, plan}, rooms...))
}

// homeArchive is where the archive is in a home: /proc there shows the home's own
// processes, which the template is none of, so the descriptor has no name.
const homeArchive = "/tmp/template.zip"

// furnish puts the archive into the home.
func (t *template) putArchive() error {
	if t.sandbox == nil {
		return nil
	}
	w, err := t.sandbox.FS().Create(context.Background(), homeArchive, sandbar.CreateOptions{Mode: 0o444})
	if err != nil {
		return err
	}
	if _, err := w.Write(python.Archive()); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

// launch is the launcher's plan.
func (t *template) launch(argv []string, namespaces int) ([]byte, error) {
	filter, err := policy.CompileTemplate(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	entry := python.ArchivePath
	if t.home != nil {
		entry = homeArchive
	}
	env := slices.Clone(t.env)
	if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, python.PathVariable+"=") }); i >= 0 {
		env[i] = python.PathVariable + "=" + entry + ":" + strings.TrimPrefix(env[i], python.PathVariable+"=")
	} else {
		env = append(env, python.PathVariable+"="+entry)
	}
	l := wire.Launch{Args: append(slices.Clone(argv), t.file), Env: env, Dir: "/", Namespaces: uint8(namespaces),
		UID: uint32(t.owner), GID: uint32(t.owner), Rlimits: policy.TemplateRlimits(hostenv.HardLimit), Seccomp: filter, Score: templateScore, Mitigate: t.d.Mitigate}
	return l.Append(nil), nil
}

// rooms opens the namespaces of the home that the template lives in: all but that
// of users, which it is not to be held in, and that of processes, from which the
// kernel lets nobody go to another that is not below it.
func (t *template) homeNamespaces(held *files) ([]*os.File, error) {
	if t.home == nil {
		return nil, nil
	}
	return held.namespaces(t.home.Init, namespaces()[2:])
}

// namespaces are those of a sandbox, that of users first: who enters that gets the
// rights to enter the others. That of mounts is last, since /proc is looked up.
func namespaces() []string { return []string{"user", "pid", "net", "ipc", "uts", "cgroup", "mnt"} }

// spawn starts the launcher, in the home's control group.
func (t *template) spawn(inherit []*os.File) (err error) {
	var group *cgroup.Group
	if t.home != nil {
		group = t.home.Group
	}
	if t.launcher, err = t.d.Spawner.Template(group, inherit); err != nil {
		return err
	}
	go func() {
		_, _ = t.launcher.Wait() // how it ended is of no interest
		close(t.dead)
	}()
	return nil
}

// greet tells the interpreter what it needs, and waits until it has imported all.
func (t *template) configure(ctx context.Context, imports []string) error {
	// RLIMIT_NPROC counts processes by user and would count a memory holder as the program's.
	holder := t.d.Facts.Enforced.PIDs != sandbar.EnforcedRlimit
	config, err := python.Config{Arch: runtime.GOARCH, MachineCode: t.d.machineCode, MemoryHolder: holder, Imports: imports, Filters: [][]byte{t.d.Filter, t.d.ProgramFilter}}.Append(nil)
	if err != nil {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "imports", Message: "the native driver cannot prepare this template: " + err.Error()}
	}
	if _, err := t.control.Write(config); err != nil {
		return t.failed(ctx, err)
	}
	buf := make([]byte, python.MaxHello)
	n, err := readWithin(ctx, t.control, buf)
	if err != nil {
		return t.failed(ctx, err)
	}
	if words := strings.Split(string(buf[:n]), "\x00"); words[0] == "launch" && len(words) == 3 {
		return sandbar.Errorf(sandbar.Unsupported, "the template could not be started: %s: %s", words[1], words[2])
	}
	hello, ok := python.ParseHello(buf[:n])
	switch {
	case !ok:
		return sandbar.Errorf(sandbar.Internal, "the template does not speak its protocol")
	case hello.Module != "":
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "imports",
			Message: "the module " + hello.Module + " cannot be imported in a sandbox: " + sandbar.Quote(hello.Exception, 100),
			Fix:     "install it where sandboxes see it, for all users, or take it off the list"}
	}
	t.read, t.holders = hello.Read, hello.Holders
	return nil
}

// failed says why a template did not come up.
func (t *template) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(contextCode(ctx), "preparing a template: %w", ctx.Err())
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Err: errors.Join(errInterpreterEnded, err),
		Message: "the interpreter ended before it was ready to be copied",
		Fix:     "it must be Python 3.10 or later with ctypes and sockets, as its package for this machine has it"}
}

// Dead is closed when the template can fork no more.
func (t *template) Dead() <-chan struct{} { return t.dead }

// templateGrace is how long a template may take to end when it is asked to, before
// it is killed.
const templateGrace = 5 * time.Second

// Close ends the template. Its forks live on.
func (t *template) Close() error {
	t.closing.Lock()
	defer t.closing.Unlock()
	if t.closed {
		return nil
	}
	if t.control != nil {
		t.control.Close()
	}
	if t.launcher != nil {
		_ = t.launcher.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(templateGrace, func() { _ = t.launcher.Kill() })
		<-t.dead
		timer.Stop()
	}
	if t.sandbox != nil {
		ctx, cancel := context.WithTimeout(context.Background(), sandboxes.UndoTimeout)
		defer cancel()
		if err := t.sandbox.Destroy(ctx); err != nil {
			return err
		}
	}
	t.closed = true
	return nil
}

// merge is an environment with more variables, sorted; the later value of a name
// takes the place of the earlier.
func merge(base []string, more map[string]string) []string {
	env := slices.Clone(base)
	for _, k := range slices.Sorted(maps.Keys(more)) {
		kv := k + "=" + more[k]
		if i := slices.IndexFunc(env, func(old string) bool { return strings.HasPrefix(old, k+"=") }); i >= 0 {
			env[i] = kv
		} else {
			env = append(env, kv)
		}
	}
	return env
}

// readWithin reads one message, as long as ctx allows.
func readWithin(ctx context.Context, conn *net.UnixConn, buf []byte) (int, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := conn.Read(buf)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func contextCode(ctx context.Context) sandbar.Code {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return sandbar.Timeout
	}
	return sandbar.Canceled
}

// fds lists descriptors for a message.
func fds(list []*os.File) []int {
	var out []int
	for _, f := range list {
		out = append(out, int(f.Fd()))
	}
	return out
}

// files are open files that are closed together.
type files struct{ list []*os.File }

func (h *files) add(fd int, name string) *os.File {
	f := os.NewFile(uintptr(fd), name)
	h.list = append(h.list, f)
	return f
}

func (h *files) close() {
	for _, f := range h.list {
		f.Close()
	}
}

// namespaces opens namespaces of a sandbox.
func (h *files) namespaces(init *spawn.Child, kinds []string) ([]*os.File, error) {
	var out []*os.File
	for _, kind := range kinds {
		fd, err := init.Open("ns/" + kind)
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Internal, "opening a sandbox's namespace %s: %w", kind, err)
		}
		out = append(out, h.add(fd, kind))
	}
	return out, nil
}

// memory makes a file of bytes that nothing can change.
func (h *files) memory(name string, content []byte) (*os.File, error) {
	f, err := spawn.Sealed(name, content, 0)
	if err == nil {
		h.list = append(h.list, f)
	}
	return f, err
}

// streams makes a template's standard streams: pipes, as most programs have, so
// that the interpreter opens them as it does pipes. Nothing comes in, and what
// imports print goes nowhere.
func (h *files) streams() (inOut [2]*os.File, err error) {
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		return inOut, sandbar.Errorf(sandbar.Exhausted, "making pipes: %w", err)
	}
	inOut[0] = h.add(in[0], "stdin")
	unix.Close(in[1])
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC); err != nil {
		return inOut, sandbar.Errorf(sandbar.Exhausted, "making pipes: %w", err)
	}
	inOut[1] = h.add(out[1], "stdout")
	if err := unix.SetNonblock(out[0], true); err != nil {
		unix.Close(out[0])
		return inOut, sandbar.Errorf(sandbar.Internal, "making pipes: %w", err)
	}
	drain := os.NewFile(uintptr(out[0]), "drain")
	go func() {
		defer drain.Close()
		_, _ = io.Copy(io.Discard, drain) // until the template and its copies have let go of it
	}()
	return inOut, nil
}

// connect makes a pair of sockets, one of which becomes conn.
func (h *files) connect(conn **net.UnixConn, name string, kind int) (theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	ours := h.add(pair[0], name)
	theirs = h.add(pair[1], name)
	if *conn, err = unixConn(ours); err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "using a socket pair: %w", err)
	}
	return theirs, nil
}

// unixConn makes a connection of a socket's file, which stays the caller's.
func unixConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}
