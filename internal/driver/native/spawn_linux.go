package native

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/cgroup"
)

// spawner starts agents, all from one thread that lives as long as the driver.
// Two things need that: the parent-death signal is sent when the thread that
// forked ends, and on cgroup v1 the thread itself enters the sandbox's groups
// and forks from there, which costs microseconds where moving the finished
// process costs the kernel a grace period of many milliseconds.
type spawner struct {
	work chan func()
	done chan struct{}
}

// spawn says what to start.
type spawn struct {
	path   string
	args   []string
	socket *os.File // becomes descriptor 3
	attr   *syscall.SysProcAttr
	owner  int // of its user namespace, if that is not the daemon
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan struct{})
	go s.run(ready)
	<-ready
	return s
}

// run is the thread. It may not be the process's main one, to which the kernel
// charges the memory of all threads.
func (s *spawner) run(ready chan<- struct{}) {
	runtime.LockOSThread() // for ever: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		go s.run(ready) // on another thread, as this one is held
		<-s.done
		runtime.UnlockOSThread()
		return
	}
	close(ready)
	defer close(s.done)
	for f := range s.work {
		f()
	}
}

// close ends the thread, and with it every agent that is still there.
func (s *spawner) close() {
	close(s.work)
	<-s.done
}

// spawn starts an agent whose first moment is already in the group.
func (s *spawner) spawn(g *cgroup.Group, what *spawn) (p *os.Process, err error) {
	ran := make(chan struct{})
	s.work <- func() {
		defer close(ran)
		p, err = start(g, what)
	}
	<-ran
	return p, err
}

// agentEnv tunes the agent's runtime. Few threads and caches; a heap that is
// collected when it reaches a megabyte, which building a sandbox and idling in
// it never do, because one collection costs as much as building the sandbox;
// no looking at cgroups for the number of processors.
var agentEnv = []string{"GOMAXPROCS=2", "GOGC=25", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

func start(g *cgroup.Group, what *spawn) (*os.Process, error) {
	leave := func() error { return nil }
	if g != nil {
		fd, err := g.FD()
		if err != nil {
			return nil, err
		}
		what.attr.UseCgroupFD, what.attr.CgroupFD = fd >= 0, max(fd, 0)
		if leave, err = g.EnterThread(); err != nil {
			return nil, err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		leave()
		return nil, sandbar.Errorf(sandbar.Exhausted, "opening %s: %w", os.DevNull, err)
	}
	back, err := becomeOwner(what.owner)
	if err != nil {
		null.Close()
		leave()
		return nil, sandbar.Errorf(sandbar.Internal, "taking on the owner of a sandbox: %w", err)
	}
	p, err := os.StartProcess(what.path, what.args, &os.ProcAttr{
		Dir:   "/",
		Env:   agentEnv,
		Files: []*os.File{null, null, null, what.socket},
		Sys:   what.attr,
	})
	null.Close()
	back()
	if lerr := leave(); lerr != nil && err == nil {
		// The thread would start every later sandbox in this one's group.
		p.Kill()
		p.Wait()
		err = lerr
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "starting the agent: %w", err)
	}
	return p, nil
}
