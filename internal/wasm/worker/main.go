package worker

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/confine"
	"github.com/sandbar-dev/sandbar/internal/wasm/call"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell"
)

// Name is a worker's argv[0]; the driver starts it under this name.
const Name = "sandbar-wasm-worker"

// IsWorker reports whether this process was started as a worker, with the arguments of Args.
func IsWorker() bool { return len(os.Args) == 3 && os.Args[0] == Name }

// Args returns the argv of a worker: the directory of the compilation cache and that of the modules
// ("" for the embedded ones).
func Args(cache, modules string) []string { return []string{Name, cache, modules} }

// Env returns the environment of workers and runners. The Go runtime must not adjust GOMAXPROCS at
// intervals, because that stops all goroutines (see package guest).
func Env() []string {
	env := []string{"GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); runtime.GOOS == "windows" && root != "" {
		env = append(env, "SYSTEMROOT="+root) // Windows needs it for random numbers
	}
	return env
}

// Main runs the worker. It never returns.
func Main() {
	// Descriptor 1 carries the protocol; other output must go to standard error.
	in, out := os.Stdin, os.Stdout
	os.Stdout = os.Stderr
	if err := confine.Worker(os.Args[1], os.Args[2]); err != nil {
		os.Stderr.WriteString(Name + ": " + err.Error() + "\n")
		os.Exit(1)
	}
	w := newWorker(&link{r: in, w: out}, os.Args[1], os.Args[2])
	_ = w.serve() // ends with the connection, so no error can be reported
	w.runners.close()
	os.Exit(0)
}

// worker is the state of one worker.
type worker struct {
	link   *link
	errnos *call.Errnos

	// Set by onSetup; only the frame-reader goroutine writes them.
	ready   bool
	plan    *plan
	fs      *memfs.FS
	initial *memfs.Snapshot
	progs   *programs
	mem     *budget

	runners *runners

	mu       sync.Mutex
	byID     map[uint32]*process // running programs by request id
	byTag    map[uint64]*process // running programs by tag
	channels map[uint32]*streams
	last     uint64 // tag of the last program

	files fileTable
	jobs  chan func()
}

// backlog bounds the queued file operations. The host sends fewer at once.
const backlog = 512

func newWorker(l *link, cache, modules string) *worker {
	w := &worker{link: l, errnos: call.NewErrnos(),
		byID: map[uint32]*process{}, byTag: map[uint64]*process{}, channels: map[uint32]*streams{},
		jobs: make(chan func(), backlog)}
	w.files.open = map[uint32]*handle{}
	w.runners = newRunners(cache, modules)
	return w
}

// serve serves the protocol until the end of the connection.
func (w *worker) serve() error {
	debug.SetGCPercent(50)
	hello := wire.Hello{Generation: wire.Generation}
	if err := w.link.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	for range 4 {
		go func() {
			for job := range w.jobs {
				job()
			}
		}()
	}
	for {
		f, err := w.link.read()
		if err != nil {
			return err
		}
		if err := w.dispatch(f); err != nil {
			return err
		}
	}
}

// errProtocol is the error for a violation of the protocol by the host. It ends the worker.
var errProtocol = errors.New("the host broke the protocol")

func (w *worker) dispatch(f wire.Frame) error {
	if !w.ready && f.Type != wire.TypeSetup {
		return errProtocol
	}
	switch f.Type {
	case wire.TypeSetup:
		return w.onSetup(f)
	case wire.TypeStart:
		return w.onStart(f)
	case wire.TypeSignal:
		return w.onSignal(f)
	case wire.TypeKill:
		return w.onKill(f)
	case wire.TypeFS:
		return w.onFS(f)
	case wire.TypeDial:
		// Sandboxes of the wasm driver have no network, so no port is open.
		w.reply(f.ID, wire.FailDial, syscall.ECONNREFUSED, nil)
		return nil
	case wire.TypeData, wire.TypeCredit, wire.TypeClose:
		return w.onStream(f)
	}
	return errProtocol
}

// onSetup builds the sandbox, or resets it if it exists.
func (w *worker) onSetup(f wire.Frame) error {
	if w.ready {
		return w.reset(f.ID)
	}
	var s wire.Setup
	if err := s.Decode(f.Payload); err != nil {
		return errProtocol
	}
	if err := w.setUp(&s); err != nil {
		w.reply(f.ID, wire.FailSetup, err, nil)
		return err
	}
	w.ready = true
	w.reply(f.ID, wire.OK, nil, wire.AppendHandle(nil, 0))
	return nil
}

// ownMemory is the worker's own limit besides twice the sandbox's memory, in bytes, and more than
// it ever needs. After a reset, files can be in memory twice.
const ownMemory = 1 << 30

func (w *worker) setUp(s *wire.Setup) error {
	w.plan = newPlan(s)
	if w.plan.memory > 0 {
		if err := confine.LimitData(2*w.plan.memory + ownMemory); err != nil {
			return err
		}
	}
	w.fs = memfs.New(memfs.Limits{})
	w.progs = newPrograms(w)
	if err := shell.Install(w.fs, w.progs.list); err != nil {
		return err
	}
	if err := installLibrary(w.fs); err != nil {
		return err
	}
	w.fs.SetLimits(w.plan.limits(w.fs.Usage()))
	w.initial = w.fs.Snapshot()
	w.mem = newBudget(w.plan.memory, func() int64 { return w.fs.Usage().Bytes })
	w.runners.warm(call.JavaScript)
	return nil
}

// reset ends every program and restores the files.
func (w *worker) reset(id uint32) error {
	w.mu.Lock()
	running := make([]*process, 0, len(w.byID))
	for _, p := range w.byID {
		running = append(running, p)
	}
	w.mu.Unlock()
	for _, p := range running {
		p.kill()
	}
	// Not on this goroutine, which must continue to read frames: a program that is being ended may
	// wait for credit.
	go func() {
		for _, p := range running {
			if !p.ended() {
				w.reply(id, wire.FailSetup, syscall.EBUSY, nil)
				return
			}
		}
		w.files.closeAll()
		w.fs.Restore(w.initial)
		w.reply(id, wire.OK, nil, wire.AppendHandle(nil, 0))
	}()
	return nil
}

// reply answers the request id.
func (w *worker) reply(id uint32, stage wire.Failure, err error, data []byte) {
	r := wire.Reply{Failure: stage, Errno: w.errnos.Linux(err), Data: data}
	_ = w.link.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil)}) // frame reader handles a lost connection
}

// link is the connection to the host.
type link struct {
	r io.Reader
	w io.Writer

	mu  sync.Mutex // guards writing
	out []byte
}

// read returns the next frame.
func (l *link) read() (wire.Frame, error) {
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return wire.Frame{}, err
	}
	h, err := wire.ParseHeader(head[:])
	if err == nil && h.FDs != 0 {
		err = errProtocol
	}
	if err != nil {
		return wire.Frame{}, err
	}
	f := wire.Frame{Type: h.Type, ID: h.ID, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(l.r, f.Payload)
	return f, err
}

// write sends one frame.
func (l *link) write(f wire.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = wire.AppendHeader(l.out[:0], wire.Header{Length: uint32(len(f.Payload)), Type: f.Type, ID: f.ID})
	l.out = append(l.out, f.Payload...)
	_, err := l.w.Write(l.out)
	if cap(l.out) > 64<<10 {
		l.out = nil
	}
	return err
}
