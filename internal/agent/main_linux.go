package agent

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Main is the agent, or the spawner. It never returns: when the connection ends,
// so does the process, and with PID 1 the whole sandbox.
func Main() {
	mode, path, ok := parseArgs(os.Args)
	if !ok {
		os.Stderr.WriteString("sandbar-agent: is started by sandbar, with a connection to it; it does nothing on its own\n")
		os.Exit(2)
	}
	// The daemon's own descriptors close on exec, but whoever started it may
	// have left it others; no program may find one.
	unix.CloseRange(SocketFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	// A program that cannot be read is not dumpable from its start, and its files of
	// /proc are root's (package spawn, Program). Only what the daemon or the spawner has
	// started has a socket here; what a program of a sandbox starts stays undumpable.
	if _, err := unix.GetsockoptInt(SocketFD, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	// It was started by a descriptor's path, and would be called by its number.
	_ = writeFile("/proc/self/comm", Name)
	if mode == ModeTemplate {
		if step, err := startTemplate(); err != nil {
			_ = unix.Send(SocketFD, []byte("launch\x00"+step+"\x00"+err.Error()), 0)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if mode == ModeSpawner {
		_ = runSpawner(os.Args[2]) // it ends with the connection, and takes its agents with it
		os.Exit(0)
	}
	if mode == ModeStage {
		runStage()
		os.Exit(1)
	}
	l, err := openConn(mode, path)
	if err != nil {
		os.Stderr.WriteString("sandbar-agent: no connection to sandbar: " + err.Error() + "\n")
		os.Exit(1)
	}
	a := &agent{
		oom:               openOOMScore(),
		wholeMachine:      mode == ModeMachine,
		boundFirstRequest: mode == ModeStdio,
		conn:              l,
		programFilter:     make(chan []byte),
		filterInstalled:   make(chan error),
		starts:            make(chan startRequest, backlog),
		byPID:             map[int]*process{},
		byID:              map[uint32]*process{},
		files:             map[uint32]*handle{},
		jobs:              make(chan func(), backlog),
		channels:          map[uint32]*streams{},
		childStarted:      make(chan struct{}, 1),
	}
	a.killer = newTreeKiller(a)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = a.serve() // it ends with the connection, and nobody is left to tell
	os.Exit(0)
}

// perThreadSyscall is the signal behind syscall.AllThreadsSyscall.
const perThreadSyscall = syscall.Signal(33)

// serve speaks the protocol from Hello to the connection's end.
func (a *agent) serve() error {
	hello := wire.Hello{Generation: wire.Generation}
	if err := a.conn.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	if os.Getpid() == 1 {
		// The kernel keeps from PID 1 what it has no handler for. The runtime's
		// handlers, some of which end the process, would let a program's
		// signals through; needed are preemption, SIGCHLD, and what the runtime
		// makes a system call on all threads with. SIGPIPE, which the runtime's
		// handler ignores, ends a PID 1 where the kernel is gVisor's.
		resetSignals(unix.SIGURG, unix.SIGCHLD, unix.SIGPIPE, perThreadSyscall)
	}
	go a.reap()
	if a.boundFirstRequest {
		if err := a.conn.awaitReadable(firstRequestTimeout); err != nil {
			return err
		}
	}
	for {
		f, err := a.conn.read()
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
	if f.Type != wire.TypeStart && f.Type != wire.TypeSetup {
		closeAll(f.FDs) // only these carry any
	}
	switch f.Type {
	case wire.TypeSetup:
		return a.onSetup(f)
	case wire.TypeStart:
		return a.onStart(f)
	case wire.TypeSignal:
		return a.onSignal(f)
	case wire.TypeKill:
		return a.onKill(f)
	case wire.TypeAdoptAttrs:
		return a.onLend(f)
	case wire.TypeAdopt:
		return a.onAdopt(f)
	case wire.TypeFS:
		return a.onFS(f)
	case wire.TypeDial:
		return a.onDial(f)
	case wire.TypeClock:
		return a.onClock(f)
	case wire.TypeData, wire.TypeCredit, wire.TypeClose:
		return a.onStream(f)
	}
	return unix.EPROTO
}

// onSetup builds the sandbox.
func (a *agent) onSetup(f wire.Frame) error {
	defer closeAll(f.FDs)
	var s wire.Setup
	if err := s.Decode(f.Payload); err != nil || a.ready {
		return unix.EPROTO
	}
	set := a.setUp
	if a.wholeMachine {
		set = a.setUpMachine
	}
	if step, err := set(&s, f.FDs); err != nil {
		a.reply(f.ID, wire.FailSetup, err, step, nil)
		return err
	}
	a.ready = true
	a.reply(f.ID, wire.OK, nil, "", wire.AppendHandle(nil, ownThreads()), a.tun...)
	closeAll(a.tun) // before any program is started
	a.tun = nil
	return nil
}

// reply answers the request id.
func (a *agent) reply(id uint32, stage wire.Failure, err error, text string, data []byte, fds ...int) {
	r := wire.Reply{Failure: stage, Errno: errno(err), Text: text, Data: data}
	a.conn.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil), FDs: fds})
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

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
