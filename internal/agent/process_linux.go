package agent

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// agent is the state of one agent.
type agent struct {
	conn  *conn
	ready bool // Setup has been applied; only the frame-reader goroutine uses it
	// readerIsUser says that the frame-reader thread accesses files as the sandbox's user.
	readerIsUser bool
	// wholeMachine says that the sandbox is a virtual machine (ModeMachine).
	wholeMachine bool
	random       int // of openRandom, if wholeMachine
	network      machineNetwork
	bootID       int    // of coverBootID, 0 before it
	machineID    int    // /etc/machine-id for the next Renew after one of a template, else 0
	capabilities uint64 // of programs, if wholeMachine
	programs     programCgroup
	held, frozen bool // see onSuspend; only the frame-reader goroutine uses them
	// boundFirstRequest makes serve give up if the host sends nothing within firstRequestTimeout.
	boundFirstRequest bool

	// From Setup; constant afterwards.
	uid, gid     uint32
	separateUser bool // programs run as another user than the agent
	env          []string
	dir          string
	nice         int
	mitigate     bool // see wire.Setup
	ruleset      int
	rlimits      []wire.Rlimit // the limits that programs inherit
	proc         procfs
	keep         keep
	watch        watchdog
	oom          oomScore
	tun          []int // the TUN device's descriptor, until the Reply to Setup passes it on
	tags         *processTags
	killer       *treeKiller

	programFilter   chan []byte       // to the launcher, once: the seccomp filter of programs
	filterInstalled chan error        // its result
	reduced         chan uint64       // to the launcher: the only capabilities that programs keep
	hasReduced      chan error        // its result
	starts          chan startRequest // requests for the launcher
	jobs            chan func()       // work for the file workers

	// mu is held from before a program is forked until both tables have it. The reaper needs mu to
	// look a pid up, so it cannot miss a program that exits at once.
	mu           sync.Mutex
	byPID        map[int]*process
	byID         map[uint32]*process
	childStarted chan struct{} // wakes the reaper if it had no children

	watches    atomic.Int32 // number of watches
	fsMu       sync.Mutex
	files      map[uint32]*handle
	lastHandle uint32
	// buffers caches *buffers of the workers.
	buffers sync.Pool

	chanMu   sync.Mutex
	channels map[uint32]*streams // open channels, by id
}

// process is a running program.
type process struct {
	id      uint32
	pid     int
	streams *streams // nil if the host has the descriptors
	killed  bool     // by the memory watchdog
	kills   uint64   // of programCgroup, before the program started
}

type startRequest struct {
	id    uint32
	start wire.Start
	fds   []int
}

// onStart queues a request for the launcher, which answers it.
func (a *agent) onStart(f wire.Frame) error {
	r := startRequest{id: f.ID, fds: f.FDs}
	err := r.start.Decode(f.Payload)
	withTerminal := r.start.Terminal.Rows > 0
	if err != nil || !a.ready || (len(f.FDs) != 0 && (len(f.FDs) != 3 || withTerminal)) || len(r.start.Args) == 0 {
		closeAll(f.FDs)
		return unix.EPROTO
	}
	select {
	case a.starts <- r:
	default:
		closeAll(f.FDs)
		a.reply(f.ID, wire.FailExec, unix.EAGAIN, "", nil)
	}
	return nil
}

// startLauncher starts the thread that forks all programs. That thread permanently gives up what
// programs must not have, before the agent drops its own capabilities: the capability bounding set
// and everything that Landlock does not allow. sealLauncher adds the programs' seccomp filter once
// the agent's own filter is installed.
func (a *agent) startLauncher() (step string, err error) {
	type outcome struct {
		step string
		err  error
	}
	ready := make(chan outcome)
	runOnOwnThread(func() {
		step, err := a.confineLauncher()
		ready <- outcome{step, err}
		if err != nil {
			return
		}
		for {
			select {
			case filter := <-a.programFilter:
				a.filterInstalled <- installFilter(filter, 0)
			case keep := <-a.reduced:
				a.hasReduced <- dropBounding(keep)
			case r := <-a.starts:
				a.launch(r)
			}
		}
	})
	o := <-ready
	return o.step, o.err
}

// sealLauncher makes the launcher install the programs' additional filter.
func (a *agent) sealLauncher(filter []byte) (step string, err error) {
	if len(filter) == 0 {
		return "", nil
	}
	a.programFilter <- filter
	return "install the programs' seccomp filter", <-a.filterInstalled
}

func (a *agent) confineLauncher() (step string, err error) {
	if a.wholeMachine {
		// The launcher keeps its own capabilities: execve(2) as user 0 gives a program those of the
		// bounding set (capabilities(7)).
		return "drop the bounding set", dropBounding(a.capabilities)
	}
	if err := dropBounding(0); err != nil {
		return "drop the bounding set", err
	}
	// Securebits do not matter: with no_new_privs and an empty bounding set execve(2) gains no
	// capability, whoever owns the file (capabilities(7)).
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "set no_new_privs", err
	}
	// Programs inherit the slack. An agent that the spawner did not start has this value already;
	// gVisor has no timer slack (EINVAL).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, ProgramTimerSlack, 0, 0, 0); err != nil && err != unix.EINVAL {
		return "set the timer slack", err
	}
	if a.mitigate {
		if err := prctl(unix.Prctl).disableSpeculation(); err != nil {
			return "switch speculation off", err
		}
	}
	if a.nice > 0 {
		// pid 0 is the calling thread
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, a.nice); err != nil {
			return "lower the priority", err
		}
	}
	if a.ruleset >= 0 {
		if err := landlockRestrict(a.ruleset); err != nil {
			return "enter the Landlock domain", err
		}
	}
	if err := setCaps(a.keptCaps()); err != nil {
		return "drop capabilities", err
	}
	return "", nil
}

// dropBounding removes all capabilities but keep from the calling thread's bounding set.
// PR_CAPBSET_DROP needs CAP_SETPCAP, which the agent lacks if a container runtime has emptied the
// set already, so it drops only what is there. The loop exceeds CAP_LAST_CAP in case the kernel is
// newer than x/sys.
func dropBounding(keep uint64) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP+8; c++ {
		if keep>>c&1 != 0 {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL { // the kernel has no such capability
			continue
		}
		if err == nil && has != 0 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// launch starts one program, on the launcher's thread.
func (a *agent) launch(r startRequest) {
	stage, err := a.fork(r)
	if err != nil {
		a.reply(r.id, stage, err, "", nil)
		return
	}
	a.watch.start(a)
}

// fork resolves the program and starts it. The Reply is sent under the lock, so that Exited cannot
// overtake it.
func (a *agent) fork(r startRequest) (wire.Failure, error) {
	defer closeAll(r.fds)
	dir, err := a.workDir(r.start.Dir)
	if err != nil {
		return wire.FailDir, err
	}
	env := MergeEnv(a.env, r.start.Env)
	path, err := lookPath(r.start.Args[0], dir, env)
	if err != nil {
		return wire.FailExec, err
	}
	p := &process{id: r.id}
	fds := r.fds
	if len(fds) == 0 {
		fail := wire.FailExec
		if size := r.start.Terminal; size.Rows > 0 {
			fail = wire.FailTerminal
			p.streams, fds, err = a.newTerminal(r.id, size)
		} else {
			p.streams, fds, err = newProcessStreams(a.conn, r.id, a.uid, a.gid, a.separateUser)
		}
		if err != nil {
			return fail, err
		}
		defer closeAll(fds)
	}
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: r.start.Terminal.Rows > 0}, // the terminal is descriptor 0
	}
	if a.programs.dir > 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, a.programs.dir
		p.kills = a.programs.oomKills()
	}
	if a.separateUser {
		attr.Sys.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	for try := 0; ; try++ {
		stage, err := a.forkAndReply(p, path, r.start.Args, attr)
		if err != unix.ETXTBSY {
			return stage, err
		}
		if try == textBusyRetries {
			p.streams.closeAll()
			return stage, err
		}
		// ETXTBSY: the executable was written a moment ago, and a process that was forked at that
		// moment still has the descriptor until its execve(2).
		time.Sleep(time.Millisecond << try)
	}
}

// textBusyRetries is the number of retries after ETXTBSY: about 30 ms in all.
const textBusyRetries = 5

// forkAndReply forks p and replies, under the lock.
func (a *agent) forkAndReply(p *process, path string, args []string, attr *syscall.ProcAttr) (stage wire.Failure, err error) {
	tag, more := <-a.tags.next
	if !more {
		p.streams.closeAll()
		return wire.FailExec, unix.EOVERFLOW
	}
	defer func() { a.tags.used <- struct{}{} }()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID[p.id] != nil {
		p.streams.closeAll()
		return wire.FailProtocol, unix.EEXIST
	}
	a.oom.raise()
	p.pid, err = syscall.ForkExec(path, args, attr)
	a.oom.restore()
	if err != nil {
		if err != unix.ETXTBSY {
			p.streams.closeAll()
		}
		return wire.FailExec, err
	}
	a.byPID[p.pid], a.byID[p.id] = p, p
	a.notifyReaper()
	a.register(p.streams)
	started := wire.Started{PID: uint32(p.pid), Tag: tag}
	a.reply(p.id, wire.OK, nil, "", started.Append(nil))
	p.streams.run()
	return wire.OK, nil
}

// workDir makes dir absolute and checks that no magic link leads to it. The child resolves it again
// with a program's rights, so a race gains nothing that the program could not reach itself.
func (a *agent) workDir(dir string) (string, error) {
	switch {
	case dir == "":
		dir = a.dir
	case dir[0] != '/':
		dir = a.dir + "/" + dir
	}
	fd, err := openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	return dir, unix.Close(fd)
}

// MergeEnv joins two environments. The last value of a name wins.
func MergeEnv(base, more []string) []string {
	at := make(map[string]int, len(base)+len(more))
	var env []string
	for _, list := range [...][]string{base, more} {
		for _, kv := range list {
			k, _, _ := strings.Cut(kv, "=")
			if i, ok := at[k]; ok {
				env[i] = kv
				continue
			}
			at[k] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

// DefaultPath is the PATH of a program whose environment has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath finds a program in the PATH of its environment, as a shell does.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.IndexByte(name, '/') >= 0 {
		return name, refuseMagicLink(name, dir)
	}
	path := DefaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var denied error = unix.ENOENT
	for _, d := range strings.Split(path, ":") {
		if d == "" || d[0] != '/' {
			d = dir + "/" + d
		}
		full := d + "/" + name
		fd, st, err := openPath(unix.AT_FDCWD, full, 0)
		if err != nil {
			continue
		}
		unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if st.Mode&0o111 != 0 {
			return full, nil
		}
		denied = unix.EACCES
	}
	return "", denied
}

// refuseMagicLink returns ELOOP for a program path through a magic link, such as /proc/self/exe,
// which is the agent's executable. Any other fault of the path is left to execve(2). The child
// resolves the path again with a program's rights: a program that exchanges the path in between at
// most runs the agent's executable as an ordinary program, where it does nothing and is read-only
// (package spawn, Program).
func refuseMagicLink(name, dir string) error {
	if name[0] != '/' {
		name = dir + "/" + name
	}
	fd, err := openAt(unix.AT_FDCWD, name, unix.O_PATH, 0)
	if err == nil {
		unix.Close(fd)
	}
	if err != unix.ELOOP {
		return nil
	}
	return err
}

// onSignal signals a program's process group.
func (a *agent) onSignal(f wire.Frame) error {
	var s wire.Signal
	if err := s.Decode(f.Payload); err != nil {
		return unix.EPROTO
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.byID[f.ID]; p != nil {
		unix.Kill(-p.pid, syscall.Signal(s.Number))
	}
	return nil
}

// ended reports the exit of a program. It ignores orphans.
func (a *agent) ended(pid int, status syscall.WaitStatus, usage *syscall.Rusage) {
	a.mu.Lock()
	p := a.byPID[pid]
	if p != nil {
		delete(a.byPID, pid)
		delete(a.byID, p.id)
	}
	a.mu.Unlock()
	if p == nil {
		return
	}
	e := wire.Exited{
		OutOfMemory: p.killed,
		CPU:         uint64(usage.Utime.Nano()+usage.Stime.Nano()) / 1000,
		MaxRSS:      uint64(usage.Maxrss) << 10,
	}
	if status.Signaled() {
		e.Signal = uint8(status.Signal())
	} else {
		e.Code = uint8(status.ExitStatus())
	}
	if a.programs.dir > 0 && (e.Signal != 0 || e.Code != 0) {
		e.OutOfMemory = a.programs.oomKills() > p.kills
	}
	exited := wire.Frame{Type: wire.TypeExited, ID: p.id, Payload: e.Append(nil)}
	if p.streams == nil {
		a.conn.write(exited)
		return
	}
	p.streams.closeIn()
	go func() { // not the reaper, which must not wait for credit
		p.streams.drain() // the host drops what comes long after Exited
		a.conn.write(exited)
	}()
}
