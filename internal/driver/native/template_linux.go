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
	"github.com/sandbar-dev/sandbar/internal/linux/slot"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
	"github.com/sandbar-dev/sandbar/internal/warm/python"
)

// A template is a Python interpreter that is copied into sandboxes (package python). A fork is a
// sandbox as Create makes it, with a copy of the interpreter that enters it before any program runs
// there. To enter, the copy needs all capabilities in the sandbox's user namespace, and these
// belong to the namespace's owner (user_namespaces(7)).
//
// If the daemon is root, the template runs as a user of its own, without capabilities. That user
// owns the user namespaces of the template's forks and nothing else. For all other namespaces the
// template has a sandbox of its own, its home. If the daemon is an ordinary user, the template is
// that user, confined by its seccomp filter only.

// templateUID is the template's user id in the id range of its home.
const templateUID = 2000

// templateScore is the oom_score_adj of programs: that of agents, plus what agents add for
// programs.
const templateScore = "600"

// Limits of a home. Nothing writes there except putArchive.
const (
	homeDisk   = 1 << 20 // bytes
	homeInodes = 256
)

// template is a prepared template.
type template struct {
	d     *Driver
	spec  sandbar.Spec
	file  string   // the program's file, absolute
	env   []string // the environment of programs that set no other
	read  []string // environment variables that imports have read
	owner int      // the host uid that owns the user namespaces of forks; 0: the daemon's
	once  bool     // forks run one program each

	home     *resources      // nil: no home
	sandbox  *client.Sandbox // of home
	launcher *os.Process     // the parent of the interpreter
	control  *net.UnixConn
	dead     chan struct{} // closed when launcher has been waited for

	retired bool // no slot is kept for forks; Driver.slots.mu guards it

	closing sync.Mutex
	closed  bool
}

var (
	_ driver.Templater = (*Driver)(nil)
	_ driver.Template  = (*template)(nil)
)

// Prepare starts a template's interpreter. It supports Python of the image "host".
func (d *Driver) Prepare(ctx context.Context, s driver.TemplateSpec) (driver.Template, error) {
	if err := d.refuseTemplate(s); err != nil {
		return nil, err
	}
	t, err := d.prepare(ctx, s)
	if errors.Is(err, errInterpreterEnded) {
		// It may have been killed for want of memory; one retry tells that from an interpreter
		// that cannot work.
		d.Log.Warn("the interpreter of a template ended; it is started once more", "error", err)
		t, err = d.prepare(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// errInterpreterEnded is the cause of an error if the interpreter ended before it was ready.
var errInterpreterEnded = errors.New("it ended")

// prepare is one attempt of Prepare.
func (d *Driver) prepare(ctx context.Context, s driver.TemplateSpec) (*template, error) {
	t := &template{d: d, spec: s.Spec, once: s.Once, file: path.Join(sandbar.DefaultDir, s.File),
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

// makeHome makes the template's home, if the daemon has ranges of ids to give out.
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

// start starts the launcher with the descriptors that it and the interpreter inherit.
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
	namespaces, err := t.homeNamespaces(&held)
	if err != nil {
		return err
	}
	launch, err := t.launch(argv, len(namespaces))
	if err != nil {
		return err
	}
	plan, err := held.memory("sandbar-plan", launch)
	if err != nil {
		return err
	}
	return t.spawn(append([]*os.File{streams[0], streams[1], streams[1], theirs, archive, plan}, namespaces...))
}

// homeArchive is the path of the archive in a home. python.ArchivePath does not exist there: the
// home's /proc shows its PID namespace, and the template is in another.
const homeArchive = "/tmp/template.zip"

// putArchive writes the archive to the home.
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

// launch returns the launcher's plan, an encoded wire.Launch.
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

// homeNamespaces opens the home's namespaces that the template enters: all except the user
// namespace, where it would lose its rights over those of its forks, and the PID namespace, because
// setns(2) allows only descendants of the current PID namespace.
func (t *template) homeNamespaces(held *files) ([]*os.File, error) {
	if t.home == nil {
		return nil, nil
	}
	return held.namespaces(t.home.Init, slot.Namespaces()[2:])
}

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
		_, _ = t.launcher.Wait() // the exit status is not used
		close(t.dead)
	}()
	return nil
}

// configure sends the interpreter its python.Config, and waits until it has imported all modules.
func (t *template) configure(ctx context.Context, imports []string) error {
	config, err := python.Config{Arch: runtime.GOARCH, Imports: imports, Filters: [][]byte{t.d.Filter, t.d.ProgramFilter}}.Append(nil)
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
		return sandbar.Errorf(sandbar.Internal, "the template sent an invalid message")
	case hello.Module != "":
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "imports",
			Message: "the module " + hello.Module + " cannot be imported in a sandbox: " + sandbar.Quote(hello.Exception, 100),
			Fix:     "install it where sandboxes see it, for all users, or take it off the list"}
	}
	t.read = hello.Read
	return nil
}

// failed returns the error of a template that ended before it was ready.
func (t *template) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "preparing a template: %w", ctx.Err())
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Err: errors.Join(errInterpreterEnded, err),
		Message: "the interpreter ended before it was ready to be copied",
		Fix:     "it must be Python 3.9 or later with ctypes and sockets, as its package for this machine has it"}
}

// Dead is closed when the template has ended.
func (t *template) Dead() <-chan struct{} { return t.dead }

// templateGrace is how long a template may take to end after SIGTERM, before SIGKILL.
const templateGrace = 5 * time.Second

// Close ends the template. Its forks continue.
func (t *template) Close() error {
	t.closing.Lock()
	defer t.closing.Unlock()
	if t.closed {
		return nil
	}
	t.d.retire(t)
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

// merge returns base with the variables of more, which replace those of the same name.
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

// readWithin reads one message, until ctx is done.
func readWithin(ctx context.Context, conn *net.UnixConn, buf []byte) (int, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := conn.Read(buf)
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// fds returns the descriptors of files.
func fds(list []*os.File) []int {
	var out []int
	for _, f := range list {
		out = append(out, int(f.Fd()))
	}
	return out
}

// files is a list of open files that are closed together.
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

// memory makes a sealed memory file (memfd_create(2)).
func (h *files) memory(name string, content []byte) (*os.File, error) {
	f, err := spawn.Sealed(name, content, 0)
	if err == nil {
		h.list = append(h.list, f)
	}
	return f, err
}

// streams makes a template's standard streams. They are pipes, as those of most programs are,
// because the interpreter opens pipes and other files differently. The input is at its end; the
// output of imports is discarded.
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
		_, _ = io.Copy(io.Discard, drain) // until the template and its copies have closed it
	}()
	return inOut, nil
}

// connect makes a socket pair. One end becomes conn; theirs is the other.
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

// unixConn makes a connection from a socket. The caller still owns f.
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
