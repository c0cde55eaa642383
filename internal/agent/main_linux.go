package agent

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Main is the agent. It never returns: when the connection ends, so does the
// process, and with PID 1 the whole sandbox.
func Main() {
	if len(os.Args) != 2 || (os.Args[1] != ModeSocket && os.Args[1] != ModeStream) {
		os.Stderr.WriteString("sandbar-agent: is started by sandbar, with a connection as descriptor 3; it does nothing on its own\n")
		os.Exit(2)
	}
	// The agent idles in every sandbox: a small heap matters more than the few
	// microseconds that collecting it costs.
	debug.SetGCPercent(10)
	runtime.LockOSThread()
	unix.CloseOnExec(SocketFD)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	a := &agent{
		link:     &link{fd: SocketFD, passes: os.Args[1] == ModeSocket},
		starts:   make(chan startRequest),
		byPID:    map[int]*process{},
		byID:     map[uint32]*process{},
		files:    map[uint32]*handle{},
		fsSlots:  make(chan struct{}, fsConcurrency),
		channels: map[uint32]*streams{},
	}
	if err := a.serve(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// serve speaks the protocol from Hello to the connection's end.
func (a *agent) serve() error {
	hello := wire.Hello{Generation: wire.Generation}
	if err := a.link.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	holdSignals()
	go a.reap(childSignals())
	for {
		f, err := a.link.read()
		if err != nil {
			return err
		}
		if err := a.dispatch(f); err != nil {
			return err
		}
	}
}

// dispatch handles one frame. An error is a violation and ends the agent.
func (a *agent) dispatch(f wire.Frame) error {
	if f.Type != wire.TypeStart {
		closeAll(f.FDs) // only Start carries any
	}
	switch f.Type {
	case wire.TypeSetup:
		return a.onSetup(f)
	case wire.TypeStart:
		return a.onStart(f)
	case wire.TypeSignal:
		return a.onSignal(f)
	case wire.TypeFS:
		return a.onFS(f)
	case wire.TypeDial:
		return a.onDial(f)
	case wire.TypeData, wire.TypeCredit, wire.TypeClose:
		return a.onStream(f)
	}
	return unix.EPROTO
}

// onSetup builds the sandbox. It runs on the main thread, which is locked, so
// that steps that concern one thread happen where the next step sees them.
func (a *agent) onSetup(f wire.Frame) error {
	var s wire.Setup
	if err := s.Decode(f.Payload); err != nil || a.ready {
		return unix.EPROTO
	}
	if step, err := a.setUp(&s); err != nil {
		a.reply(f.ID, wire.FailSetup, err, step, nil)
		return err
	}
	a.ready = true
	a.reply(f.ID, wire.OK, nil, "", nil)
	// The plan is no longer needed; idle sandboxes should not keep it.
	s = wire.Setup{}
	debug.FreeOSMemory()
	return nil
}

// reply answers the request id.
func (a *agent) reply(id uint32, stage wire.Failure, err error, text string, data []byte, fds ...int) {
	r := wire.Reply{Failure: stage, Errno: errno(err), Text: text, Data: data}
	a.link.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil), FDs: fds})
}

// errno is the kernel's number in err; EIO for an error that has none.
func errno(err error) uint32 {
	switch e := err.(type) {
	case nil:
		return 0
	case syscall.Errno:
		return uint32(e)
	case *os.PathError:
		return errno(e.Err)
	case *os.SyscallError:
		return errno(e.Err)
	}
	return uint32(unix.EIO)
}

// holdSignals makes every signal that can be caught harmless. As PID 1 the
// agent is safe from those without a handler, but the runtime installs handlers
// and would end the process for some. Notify rather than Ignore: an ignored
// signal would stay ignored in every program the agent starts.
func holdSignals() {
	sink := make(chan os.Signal, 1) // full after the first; the rest is dropped
	var sigs []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		if n != unix.SIGCHLD && n != unix.SIGKILL && n != unix.SIGSTOP {
			sigs = append(sigs, n)
		}
	}
	signal.Notify(sink, sigs...)
}

// childSignals delivers at least one value after any child's end.
func childSignals() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGCHLD)
	return c
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
