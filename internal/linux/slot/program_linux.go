package slot

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// The layout of a slot's memory behind interp.Entry.
const (
	dataAt    = interp.Base + 0x28000
	jobAt     = interp.Base + 0x60000 // the instructions of a job
	jobDataAt = interp.Base + 0x70000
	endAt     = interp.Base + interp.Size
)

// Messages of a slot and of the first process of a sandbox, one byte each.
const (
	msgReady   = 'R' // the slot waits for a request to build a sandbox
	msgBuilt   = 'B' // the first process waits for a job; with descriptors if Plan.Enter is set
	msgStarted = 'S' // the program runs; with its pidfd
	msgNoExec  = 'X' // the program was not started
	msgEnded   = 'E' // the program has ended
	msgOrphans = 'O' // it has left processes behind
	msgDone    = 'D' // no process of the sandbox is left
	msgFailed  = 'F' // the step at interp.FailedAt failed; the process exits
)

// anyChild is the pid -1 of wait4(2).
const anyChild = uint64(1<<64 - 1)

// Messages to a slot and to the first process.
const (
	msgGo    = 'G' // go on: build a sandbox, or start the job
	msgFresh = 'N' // build a sandbox with a new network namespace
	msgAdopt = 'A' // the process at Program.pid is the program
)

// Program is a list of instructions for slots whose sandboxes all have the same plan.
type Program struct {
	*list
	machineID, bootID uint64 // addresses of the texts
	passed            int    // number of descriptors that Slot.Built returns
	cwd               string // of sandboxes
	env               []string

	network       uint64     // cookie of the network namespace
	before, after []netState // of the sandbox
	status, usage uint64     // of wait4(2)
	pid           uint64     // of the program
	failed        uint64     // 1: the program was not started
}

// Plan describes the sandboxes of a Program.
type Plan struct {
	// Setup is the plan for an agent, of a sandbox with a range of ids and without an image. Its
	// machine id and boot id are replaced for each sandbox.
	Setup *wire.Setup
	// Cookies says that the kernel has core scheduling cookies.
	Cookies bool
	// MostTag is the hard limit of the resource of process tags.
	MostTag uint64
	// Enter says that another process enters the sandboxes to become the program: see Slot.Built.
	Enter bool
}

// Rlimits returns the limits of programs and, as the last, their tag.
func (p Plan) Rlimits() []wire.Rlimit {
	tag := agent.FirstTag(p.MostTag)
	return append(slices.Clone(p.Setup.Rlimits), wire.Rlimit{Resource: p.Setup.TagResource, Soft: tag, Hard: tag})
}

// Namespaces are the kinds of a sandbox's namespaces, in the order of entering them: user first,
// which gives the rights to enter the others, and mnt last.
func Namespaces() []string { return []string{"user", "pid", "net", "ipc", "uts", "cgroup", "mnt"} }

// writer writes a Program.
type writer struct {
	*Program
	p Plan

	scratch, first, pipe uint64
	request              uint64 // word; the lowest byte is read
	control, message     uint64 // of the job's descriptors
	reply                uint64 // struct msghdr of msgStarted
	pidfd                uint64
	ruleset              uint64 // word; 0: no Landlock
}

// Compile writes the Program of a plan. Unsupported: the plan has something that only an agent can
// do.
func Compile(p Plan) (*Program, error) {
	s := p.Setup
	if s.Prebuilt || s.Watchdog > 0 || s.Interface.Name != "" || s.Nice > 0 || s.PIDs > 0 || len(s.Seccomp) == 0 {
		return nil, sandbar.Errorf(sandbar.Unsupported, "a slot cannot make such a sandbox")
	}
	w := &writer{Program: &Program{list: &list{at: interp.Base + interp.Entry, data: dataAt}, cwd: s.Dir, env: s.Env}, p: p}
	w.fail = w.label()
	w.scratch, w.first, w.pid, w.pipe = w.words(0), w.words(0), w.words(0), w.words(0)
	w.request, w.network = w.words(0), w.words(0)
	w.status, w.usage, w.failed, w.pidfd = w.words(0), w.space(144), w.words(0), w.words(0)
	w.messages()
	once, each := splitPlan(s.Mounts)
	first := w.label()
	if err := w.begin(once); err != nil {
		return nil, err
	}
	w.life(first)
	w.place(first)
	if err := w.initial(each); err != nil {
		return nil, err
	}
	w.place(w.fail)
	w.send(msgFailed)
	w.call("", unix.SYS_EXIT_GROUP, 1).optional()
	return w.Program, nil
}

// messages makes the headers of messages with descriptors (struct msghdr, recvmsg(2)).
func (w *writer) messages() {
	w.control = w.space(64)
	w.message = w.words(0, 0, w.words(w.scratch, 1), 1, w.control, 0, 0)
	w.reply, w.pidfd = w.passing(msgStarted, 1)
}

// passing makes the header of a message of one byte with n descriptors. data is where they are, 4
// bytes each; another 4 bytes follow.
func (w *writer) passing(message byte, n int) (header, data uint64) {
	const size = 16 // of the header of a control message
	length := uint64(size + 4*n)
	control := w.words(length, uint64(unix.SOL_SOCKET|unix.SCM_RIGHTS<<32))
	w.space((4*n + 4 + 7) &^ 7)
	text := w.words(uint64(message))
	return w.words(0, 0, w.words(text, 1), 1, control, length, 0), control + size
}

// send sends a message of one byte.
func (w *writer) send(message byte) {
	w.call("report", unix.SYS_WRITE, interp.Socket, string(message), 1).optional()
}

// exit ends the process.
func (w *writer) exit(code int) { w.call("", unix.SYS_EXIT_GROUP, code).optional() }

// begin adds the steps that a slot takes once.
func (w *writer) begin(parts []wire.Mount) error {
	for range 3 {
		w.call("open /dev/null", unix.SYS_OPENAT, cwd, os.DevNull, unix.O_RDWR)
	}
	quit := w.label()
	over := w.label()
	w.call("wait for the ids", unix.SYS_READ, interp.Socket, w.scratch, 1).zero(quit)
	w.jump(over)
	w.place(quit)
	w.exit(0)
	w.place(over)
	w.call("drop groups", unix.SYS_SETGROUPS, 0, 0)
	w.call("change the group", unix.SYS_SETRESGID, 0, 0, 0)
	w.call("change the user", unix.SYS_SETRESUID, 0, 0, 0)
	// The change of user has reset the signal. If the parent has ended meanwhile, getppid(2) is
	// another than before.
	w.call("end with the spawner", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL))
	w.call("find the spawner", unix.SYS_GETPPID).save(w.scratch)
	alive := w.label()
	w.equal(loaded(w.scratch), loaded(interp.Base+interp.ParentAt), alive)
	w.exit(0)
	w.place(alive)
	action := w.words(0, 0, 0, 0) // struct sigaction: SIG_DFL
	for n := 1; n <= 64; n++ {    // programs would inherit those that the daemon ignores
		w.call("reset a signal", unix.SYS_RT_SIGACTION, n, action, 0, 8).optional()
	}
	w.call("make a session", unix.SYS_SETSID)
	w.call("have a name", unix.SYS_PRCTL, unix.PR_SET_NAME, agent.Name)
	w.call("set the timer slack", unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, agent.ProgramTimerSlack)
	w.call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	w.call("become undumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	for c := range unix.CAP_LAST_CAP + 9 { // the kernel may be newer than x/sys; see agent.dropBounding
		s := w.call("drop the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if c > unix.CAP_LAST_CAP {
			s.optional()
		}
	}
	if w.p.Setup.Mitigate {
		for _, what := range []int{unix.PR_SPEC_STORE_BYPASS, unix.PR_SPEC_INDIRECT_BRANCH} {
			// an error means that the kernel lacks the switch; see agent.disableSpeculation
			w.call("switch speculation off", unix.SYS_PRCTL, unix.PR_SET_SPECULATION_CTRL, what, unix.PR_SPEC_FORCE_DISABLE, 0, 0).optional()
		}
	}
	w.call("make mounts private", unix.SYS_MOUNT, "", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err := w.parts(parts); err != nil {
		return err
	}
	for _, x := range w.p.Setup.Sysctls {
		if !perSandbox(x.Name) {
			w.sysctl(x.Name, x.Value)
		}
	}
	w.call("make a pipe", unix.SYS_PIPE2, w.pipe, unix.O_CLOEXEC|unix.O_NONBLOCK)
	w.loopback()
	w.send(msgReady)
	return nil
}

// parts makes the slot's root, with directories for the roots of sandboxes.
func (w *writer) parts(plan []wire.Mount) error {
	base := w.p.Setup.Root
	w.call("set the umask", unix.SYS_UMASK, 0)
	w.call("make a file system", unix.SYS_MOUNT, "tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m,nr_inodes=1024")
	for _, dir := range []string{partsDir, procDir} {
		w.call("make a directory", unix.SYS_MKDIRAT, cwd, base+dir, 0o755)
	}
	// The roots of sandboxes are built at the path at which agents build them, because the options of
	// a mount show it to programs.
	(&root{list: w.list, base: base, made: map[string]bool{}}).mkdirAll(base + w.p.Setup.Root)
	r := &root{list: w.list, base: base + partsDir, made: map[string]bool{}, fd: w.scratch}
	if err := r.prepare(plan); err != nil {
		return err
	}
	w.emptyProc(base + procDir)
	w.call("enter the slot's root", unix.SYS_CHDIR, base)
	w.call("pivot to the slot's root", unix.SYS_PIVOT_ROOT, ".", ".")
	w.call("detach the old root", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	w.call("enter the slot's root", unix.SYS_CHDIR, "/")
	r.setFlags("make the slot's root read-only", "/", wire.MountReadOnly, false)
	return nil
}

// emptyProc mounts the proc of a PID namespace whose only process ends. It has the files of the
// kernel, as /proc/sys, without which a user namespace may not mount another proc.
func (w *writer) emptyProc(target string) {
	const name = "mount the slot's /proc"
	child, over, failed := w.label(), w.label(), w.fail
	w.call(name, unix.SYS_CLONE, uint64(unix.CLONE_NEWPID)|uint64(unix.SIGCHLD), 0, 0, 0, 0).zero(child).save(w.first)
	w.call(name, unix.SYS_WAIT4, loaded(w.first), w.scratch, unix.WALL, 0)
	w.equal(loaded(w.scratch), 0, over)
	w.jump(failed)
	w.place(child)
	w.fail = w.label()
	w.call(name, unix.SYS_MOUNT, "proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	w.exit(0)
	w.place(w.fail)
	w.exit(1)
	w.fail = failed
	w.place(over)
}

// perSandbox reports whether a bound of the user namespace would keep the slot from making
// sandboxes. Each sandbox sets it, and the slot removes it before the next.
func perSandbox(name string) bool {
	switch name {
	case "user/max_net_namespaces", "user/max_ipc_namespaces", "user/max_uts_namespaces":
		return true
	}
	return false
}

// sysctl writes a setting that the kernel may lack.
func (w *writer) sysctl(name, value string) {
	w.call("", unix.SYS_OPENAT, cwd, "/proc/sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0).save(w.scratch).optional()
	w.call("", unix.SYS_WRITE, loaded(w.scratch), value, len(value)).optional()
	w.call("", unix.SYS_CLOSE, loaded(w.scratch)).optional()
}

// sandboxNamespaces are the namespaces that each sandbox of a slot has of its own, besides those of
// the slot.
const sandboxNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// life adds the slot's loop: it clones the first process of a sandbox and waits for its end.
func (w *writer) life(first label) {
	again, keep, quit := w.label(), w.label(), w.label()
	w.place(again)
	w.call("wait for a request", unix.SYS_READ, interp.Socket, w.request, 1).zero(quit)
	for _, x := range w.p.Setup.Sysctls {
		if perSandbox(x.Name) {
			w.sysctl(x.Name, "1024")
		}
	}
	w.equal(loaded(w.request), int(msgGo), keep)
	w.call("make a network namespace", unix.SYS_UNSHARE, unix.CLONE_NEWNET)
	w.loopback()
	w.place(keep)
	w.call("clone the first process", unix.SYS_CLONE, uint64(sandboxNamespaces)|uint64(unix.SIGCHLD), 0, 0, 0, 0).zero(first).save(w.first)
	w.call("wait for the first process", unix.SYS_WAIT4, loaded(w.first), w.scratch, unix.WALL, 0)
	w.send(msgDone)
	w.jump(again)
	w.place(quit)
	w.exit(0)
}

// initial adds the steps of the first process of a sandbox.
func (w *writer) initial(plan []wire.Mount) error {
	quit, alive := w.label(), w.label()
	w.call("close the pipe", unix.SYS_CLOSE, loaded(w.pipe+4))
	w.call("end with the slot", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL))
	// Only the slot has the other end now. At its end the read returns 0, otherwise EAGAIN.
	w.call("find the slot", unix.SYS_READ, loaded(w.pipe), w.scratch, 1).zero(quit).optional()
	w.jump(alive)
	w.place(quit)
	w.exit(0)
	w.place(alive)
	w.call("close the pipe", unix.SYS_CLOSE, loaded(w.pipe))
	s := w.p.Setup
	for _, x := range s.Sysctls {
		if perSandbox(x.Name) {
			w.sysctl(x.Name, x.Value)
		}
	}
	if s.Mitigate && w.p.Cookies {
		const threadGroup = 1
		w.call("have a core scheduling cookie", unix.SYS_PRCTL, unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, threadGroup, 0)
	}
	w.call("set the umask", unix.SYS_UMASK, 0)
	w.call("set the host name", unix.SYS_SETHOSTNAME, s.Hostname, len(s.Hostname))
	r := &root{list: w.list, base: s.Root, parts: partsDir, made: map[string]bool{}, fd: w.scratch}
	if err := r.build(plan); err != nil {
		return err
	}
	w.machineID, w.bootID = r.machineID, r.bootID
	w.call("set the umask", unix.SYS_UMASK, 0o022)
	if err := w.landlock(); err != nil {
		return err
	}
	w.rlimits()
	w.capabilities()
	after := w.compareStates()
	built := w.built()
	w.filter("install the seccomp filter", s.Seccomp)
	built()
	w.job(quit, after)
	return nil
}

// built opens the sandbox's namespaces if another process is to enter them, and returns the step
// that reports that the sandbox is built.
func (w *writer) built() (report func()) {
	if !w.p.Enter {
		return func() { w.send(msgBuilt) }
	}
	kinds := Namespaces()
	n := len(kinds)
	if w.ruleset != 0 {
		n++
	}
	w.passed = n
	message, data := w.passing(msgBuilt, n)
	for i, kind := range kinds { // in this order: each step writes 8 bytes
		w.call("open a namespace", unix.SYS_OPENAT, cwd, "/proc/self/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0).save(data + 4*uint64(i))
	}
	if w.ruleset != 0 {
		w.call("", interp.Store, loaded(w.ruleset)).optional().save(data + 4*uint64(len(kinds)))
	}
	return func() { w.call("report", unix.SYS_SENDMSG, interp.Socket, message, unix.MSG_NOSIGNAL) }
}

// loopback brings up "lo" and finds out the cookie of the network namespace. A kernel without
// cookies leaves 0.
func (w *writer) loopback() {
	var request [40]byte // struct ifreq
	copy(request[:], "lo")
	request[16] = unix.IFF_UP | unix.IFF_RUNNING
	const name = "bring up the loopback"
	w.call(name, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).save(w.scratch)
	w.call(name, unix.SYS_IOCTL, loaded(w.scratch), unix.SIOCSIFFLAGS, string(request[:]))
	w.set(w.network, 0)
	w.call("", unix.SYS_GETSOCKOPT, loaded(w.scratch), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE, w.network, w.words(8)).optional()
	w.call(name, unix.SYS_CLOSE, loaded(w.scratch))
}

// landlock makes the ruleset of programs, if this kernel has Landlock.
func (w *writer) landlock() error {
	attr, size, ok := agent.LandlockAttr(&w.p.Setup.Landlock)
	if !ok {
		return nil
	}
	const name = "make the Landlock ruleset"
	w.ruleset = w.words(0)
	w.call(name, unix.SYS_LANDLOCK_CREATE_RULESET, w.words(attr.Handled_access_fs, attr.Handled_access_net, attr.Scoped), uint64(size), 0).save(w.ruleset)
	for _, rule := range w.p.Setup.Landlock.Rules {
		info, err := os.Stat(rule.Path)
		if err != nil {
			continue // a missing path needs no rule
		}
		access := rule.Access & attr.Handled_access_fs
		if !info.IsDir() {
			access &= agent.LandlockFile
		}
		if access == 0 {
			continue
		}
		missing := w.label()
		beneath := w.words(access, 0) // struct landlock_path_beneath_attr
		w.call(name, unix.SYS_OPENAT, cwd, rule.Path, unix.O_PATH|unix.O_CLOEXEC, 0).save(beneath + 8).failTo(missing)
		w.call(name, unix.SYS_LANDLOCK_ADD_RULE, loaded(w.ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, beneath, 0)
		w.call(name, unix.SYS_CLOSE, loaded(beneath+8))
		w.place(missing)
	}
	return nil
}

// rlimits sets the limits and the tag of the one program.
func (w *writer) rlimits() {
	for _, r := range w.p.Rlimits() {
		w.call("set a limit", unix.SYS_PRLIMIT64, 0, r.Resource, w.words(r.Soft, r.Hard), 0)
	}
}

// capabilities leaves the first process those that an agent keeps.
func (w *writer) capabilities() {
	keep := uint64(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL)
	header := w.words(unix.LINUX_CAPABILITY_VERSION_3)
	// struct cap_user_data: effective, permitted and inheritable, first their lower halves
	w.call("drop capabilities", unix.SYS_CAPSET, header, w.words(keep|keep<<32, 0, 0))
}

// filter installs a system-call filter.
func (w *writer) filter(name string, program []byte) {
	const size = 8 // of an instruction
	w.call(name, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, w.words(uint64(len(program)/size), w.str(string(program))))
}

// job adds what the first process does after the sandbox is built: it receives a job, starts its
// program, waits for the end of all processes, and takes the steps of after.
func (w *writer) job(quit label, after func()) {
	w.set(w.message+40, 32)
	w.set(w.scratch, 0)
	w.call("receive a job", unix.SYS_RECVMSG, interp.Socket, w.message, unix.MSG_CMSG_CLOEXEC).zero(quit)
	w.set(w.failed, 0)
	child, failed, started := w.label(), w.label(), w.label()
	if w.p.Enter {
		start := w.label()
		w.equal(loaded(w.scratch), int(msgGo), start)
		w.call("find the program", unix.SYS_PIDFD_OPEN, loaded(w.pid), 0).save(w.pidfd)
		w.jump(started)
		w.place(start)
	}
	w.call("start the program", unix.SYS_CLONE, uint64(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD)|uint64(unix.SIGCHLD), 0, w.pidfd, 0, 0).zero(child).save(w.pid)
	for i := range uint64(3) {
		w.call("close a stream", unix.SYS_CLOSE, loaded(w.control+16+4*i))
	}
	w.equal(loaded(w.failed), 1, failed)
	w.place(started)
	w.call("report", unix.SYS_SENDMSG, interp.Socket, w.reply, unix.MSG_NOSIGNAL)
	w.call("close the pidfd", unix.SYS_CLOSE, loaded(w.pidfd))

	again, ended, done, orphans, rest := w.label(), w.label(), w.label(), w.label(), w.label()
	w.place(again)
	w.call("wait for the program", unix.SYS_WAIT4, anyChild, w.status, 0, w.usage).save(w.scratch).failTo(done)
	w.equal(loaded(w.scratch), loaded(w.pid), ended)
	w.jump(again)
	w.place(ended)
	w.send(msgEnded)
	w.place(rest)
	w.call("find orphans", unix.SYS_WAIT4, anyChild, w.scratch, unix.WNOHANG, 0).failTo(done).zero(orphans)
	w.jump(rest)
	w.place(orphans)
	w.send(msgOrphans)
	all := w.label()
	w.place(all)
	w.call("wait for orphans", unix.SYS_WAIT4, anyChild, w.scratch, 0, 0).failTo(done)
	w.jump(all)
	w.place(done)
	after()
	w.exit(0)
	w.place(failed)
	w.send(msgNoExec)
	w.jump(done)
	w.place(child)
	w.becomeProgram()
}

// becomeProgram adds the steps between vfork(2) and the job's own.
func (w *writer) becomeProgram() {
	before := w.fail
	w.fail = w.label()
	w.call("make a session", unix.SYS_SETSID)
	for i := range uint64(3) {
		w.call("connect the streams", unix.SYS_DUP3, loaded(w.control+16+4*i), i, 0)
	}
	s := w.p.Setup
	w.call("drop groups", unix.SYS_SETGROUPS, 0, 0)
	w.call("change the group", unix.SYS_SETRESGID, s.GID, s.GID, s.GID)
	w.call("change the user", unix.SYS_SETRESUID, s.UID, s.UID, s.UID)
	if w.ruleset != 0 {
		w.call("enter the Landlock domain", unix.SYS_LANDLOCK_RESTRICT_SELF, loaded(w.ruleset), 0)
	}
	w.call("close descriptors", unix.SYS_CLOSE_RANGE, 3, uint64(1<<32-1), 0)
	w.call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, w.words(0), 0, 8)
	if len(s.ProgramSeccomp) > 0 {
		w.filter("install the programs' seccomp filter", s.ProgramSeccomp)
	}
	w.steps[len(w.steps)-1].Next = jobAt
	w.place(w.fail)
	w.set(w.failed, 1)
	w.exit(127)
	w.fail = before
}
