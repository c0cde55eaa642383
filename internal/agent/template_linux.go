package agent

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// startTemplate is ModeTemplate: it starts the confined interpreter of a template and stays as its
// parent until the interpreter exits. PlanFD holds the wire.Launch; NamespaceFD and the descriptors
// after it are the namespaces to enter.
//
// Unlike a sandbox's program, the interpreter stays in the daemon's user namespace, without
// capabilities. It owns the user namespaces of the sandboxes of its forks, which is the one right
// that lets a fork enter them (user_namespaces(7)).
func startTemplate() (step string, err error) {
	runtime.LockOSThread()
	var l wire.Launch
	text, err := io.ReadAll(io.LimitReader(os.NewFile(PlanFD, "plan"), wire.MaxPayload))
	if err == nil {
		err = l.Decode(text)
	}
	if err != nil {
		return "read the plan", err
	}
	_ = writeFile("/proc/self/oom_score_adj", l.Score) // only a preference of the OOM killer
	resetSignals(unix.SIGURG, unix.SIGCHLD, perThreadSyscall)
	if step, err := enterNamespaces(int(l.Namespaces)); err != nil {
		return step, err
	}
	if step, err := confineTemplate(&l); err != nil {
		return step, err
	}
	path, err := lookPath(l.Args[0], l.Dir, l.Env)
	if err != nil {
		return "find the interpreter", err
	}
	attr := &syscall.ProcAttr{Dir: l.Dir, Env: l.Env, Files: []uintptr{0, 1, 2, 3, 4},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if l.Namespaces > 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: l.UID, Gid: l.GID}
	}
	pid, err := syscall.ForkExec(path, l.Args, attr)
	if err != nil {
		return "start the interpreter", err
	}
	waitInterpreter(pid)
	return "", nil
}

// enterNamespaces moves the calling thread into the inherited namespaces, which its children share.
func enterNamespaces(n int) (step string, err error) {
	if n == 0 {
		return "", nil
	}
	// setns(2) refuses a mount namespace if the thread shares its directories
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return "have directories of its own", err
	}
	for fd := NamespaceFD; fd < NamespaceFD+n; fd++ {
		if err := unix.Setns(fd, 0); err != nil {
			return "enter a namespace", err
		}
	}
	unix.Umask(0o022)
	return "", nil
}

// confineTemplate drops all rights of the calling thread and its children, except those to change
// user.
func confineTemplate(l *wire.Launch) (step string, err error) {
	if step, err := setRlimits(l.Rlimits); err != nil {
		return step, err
	}
	var keep uint64
	if l.Namespaces > 0 {
		if err := dropBounding(0); err != nil {
			return "drop the bounding set", err
		}
		keep = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "set no_new_privs", err
	}
	if l.Mitigate {
		if err := prctl(unix.Prctl).disableSpeculation(); err != nil {
			return "switch speculation off", err
		}
	}
	if err := setCaps(keep); err != nil {
		return "drop capabilities", err
	}
	if err := installFilter(l.Seccomp, 0); err != nil {
		return "install the seccomp filter", err
	}
	return "", nil
}

// waitInterpreter waits until the interpreter exits, and kills it on SIGTERM.
func waitInterpreter(pid int) {
	for fd := range NamespaceFD + 16 { // these belong to the interpreter
		unix.Close(fd)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	go func() {
		<-asked
		unix.Kill(pid, unix.SIGKILL)
	}()
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return
		}
	}
}
