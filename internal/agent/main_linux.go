package agent

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Main is the entry point of every mode. It never returns: the process exits when its connection
// ends, and the kernel ends the sandbox with its PID 1.
func Main() {
	mode, port, ok := parseArgs(os.Args)
	if !ok {
		os.Stderr.WriteString("sandbar-agent: sandbar starts this program with a connection; it does nothing on its own\n")
		os.Exit(2)
	}
	// The daemon's own descriptors are close-on-exec, but the process that started the daemon may
	// have leaked others into it. No program may inherit one.
	unix.CloseRange(SocketFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	// The executable is not readable, so the process starts undumpable and its files in /proc
	// belong to root (package spawn, Program). The daemon and the spawner pass a socket, so a
	// process with a socket here is theirs and may become dumpable again. A process that a
	// sandboxed program started from this executable stays undumpable.
	if _, err := unix.GetsockoptInt(SocketFD, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	// The kernel derived the name from the path, /proc/self/fd/N.
	_ = writeFile("/proc/self/comm", Name)
	if mode == ModeTemplate {
		if step, err := startTemplate(); err != nil {
			_ = unix.Send(SocketFD, []byte("launch\x00"+step+"\x00"+err.Error()), 0)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if mode == ModeSpawner {
		// returns when the connection ends; PR_SET_PDEATHSIG then kills its agents
		_ = runSpawner(os.Args[2])
		os.Exit(0)
	}
	if mode == ModeStage {
		runStage()
		os.Exit(1)
	}
	if mode == ModeMonitor {
		runMonitor()
		os.Exit(1)
	}
	l, err := openConn(mode, port)
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
		reduced:           make(chan uint64),
		hasReduced:        make(chan error),
		starts:            make(chan startRequest, backlog),
		byPID:             map[int]*process{},
		byID:              map[uint32]*process{},
		files:             map[uint32]*handle{},
		jobs:              make(chan func(), backlog),
		channels:          map[uint32]*streams{},
		childStarted:      make(chan struct{}, 1),
	}
	if a.wholeMachine {
		a.random, a.network = openRandom(), openMachineNetwork()
	}
	a.killer = newTreeKiller(a)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = a.serve() // an error means that the connection is gone, so nobody can receive a report
	os.Exit(0)
}

// perThreadSyscall is the signal that syscall.AllThreadsSyscall uses.
const perThreadSyscall = syscall.Signal(33)

// ignoredSignals are the signals that end a process of the Go runtime: those on which its handler
// does, and 32 and 34, for which it has none. Process 1 gives them a handler that does nothing, so
// no program can end the agent. Their default action would not do: the kernel discards such a
// signal (pid_namespaces(7)), but not while the thread that it is for blocks it, as the runtime
// does when it starts a program or handles another signal; then the kernel ends the process
// (complete_signal in kernel/signal.c, Linux 6.12). Programs would inherit SIG_IGN. For all other
// signals the runtime's handlers do nothing.
var ignoredSignals = [...]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT,
	unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGSYS, 32, 34}

// serve handles the connection from Hello to its end.
func (a *agent) serve() error {
	hello := wire.Hello{Generation: wire.Generation}
	if err := a.conn.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	if os.Getpid() == 1 {
		ignoreSent(ignoredSignals[:]...)
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

// dispatch handles one frame. An error is a protocol violation and ends the agent.
func (a *agent) dispatch(f wire.Frame) error {
	if f.Type != wire.TypeStart && f.Type != wire.TypeSetup && f.Type != wire.TypeSaveFiles {
		closeAll(f.FDs) // no other frame carries descriptors
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
		return a.onAdoptAttrs(f)
	case wire.TypeAdopt:
		return a.onAdopt(f)
	case wire.TypeFS:
		return a.onFS(f)
	case wire.TypeDial:
		return a.onDial(f)
	case wire.TypeWatch:
		return a.onWatch(f)
	case wire.TypeSaveFiles:
		return a.onSaveFiles(f)
	case wire.TypeRelease:
		return a.onRelease(f)
	case wire.TypeClock:
		return a.onClock(f)
	case wire.TypeRenew:
		return a.onRenew(f)
	case wire.TypeSuspend:
		return a.onSuspend(f)
	case wire.TypeResume:
		return a.onResume(f)
	case wire.TypeContinue:
		return a.onContinue(f)
	case wire.TypeResize:
		return a.onResize(f)
	case wire.TypeData, wire.TypeCredit, wire.TypeClose:
		return a.onStream(f)
	}
	return unix.EPROTO
}

// onSetup applies the plan. A second Setup is a violation, except in a machine.
func (a *agent) onSetup(f wire.Frame) error {
	defer closeAll(f.FDs)
	var s wire.Setup
	if err := s.Decode(f.Payload); err != nil || a.ready && !a.wholeMachine {
		return unix.EPROTO
	}
	set := a.setUp
	switch {
	case a.ready:
		set = a.changeMachine
	case a.wholeMachine:
		set = a.setUpMachine
	}
	if step, err := set(&s, f.FDs); err != nil {
		a.reply(f.ID, wire.FailSetup, err, step, nil)
		return err
	}
	a.ready = true
	a.reply(f.ID, wire.OK, nil, "", wire.AppendHandle(nil, ownThreads()), a.tun...)
	closeAll(a.tun) // programs must not inherit it
	a.tun = nil
	return nil
}

// reply answers request id.
func (a *agent) reply(id uint32, stage wire.Failure, err error, text string, data []byte, fds ...int) {
	r := wire.Reply{Failure: stage, Errno: errno(err), Text: text, Data: data}
	a.conn.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil), FDs: fds})
}

// errno returns the kernel's error number in err, 0 for nil and EIO for any other error.
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
