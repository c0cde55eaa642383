package cgroup

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// version1 tries the version 1 hierarchy that own is in.
func (d *detection) version1(own membership) {
	var ours []string
	for _, c := range wantedControllers() {
		if slices.Contains(own.controllers, c) {
			ours = append(ours, c)
		}
	}
	if len(ours) == 0 {
		return
	}
	h, p := d.tryVersion1(own, ours)
	if h == nil {
		d.refuse(ours, p)
		return
	}
	d.use(h)
}

func (d *detection) tryVersion1(own membership, ours []string) (*hierarchy, problem) {
	sys := d.m.sys
	fits := func(m mount) bool {
		return m.version == 1 && slices.Contains(m.controllers, ours[0]) && d.visible(m)
	}
	at, outside, ok := locate(d.mounts, fits, own.path)
	switch {
	case outside != "" && !ok:
		return nil, outsideProblem(own.path, outside)
	case !ok:
		names := strings.Join(own.controllers, ",")
		return nil, problem{"its version 1 hierarchy is not mounted",
			fmt.Sprintf("mount it: mkdir -p /sys/fs/cgroup/%s && mount -t cgroup -o %s cgroup /sys/fs/cgroup/%s", names, names, names)}
	case at.mount.readOnly:
		return nil, problem{at.mount.dir + " is mounted read-only", readOnlyFix}
	}
	h := &hierarchy{version: 1, controllers: ours, base: at.dir, parent: at.dir + "/" + parentName}
	if err := d.m.makeParent(h); err != nil {
		return nil, problem{fmt.Sprintf("no group can be made in %s: %v", at.dir, err), version1Fix(sys.Uid())}
	}
	home, err := sys.OpenWriter(at.dir + "/tasks")
	if err == nil {
		h.tasks = home
		err = d.m.probe(h)
	}
	if err != nil {
		d.m.release(h)
		return nil, problem{fmt.Sprintf("a thread cannot enter a group in %s and return: %v", at.dir, err), version1Fix(sys.Uid())}
	}
	return h, problem{}
}

func version1Fix(uid int) string {
	if uid == 0 {
		return "give the process CAP_DAC_OVERRIDE, or in a container start with --privileged"
	}
	const set = "memory,cpu,cpuacct,pids"
	return fmt.Sprintf("run as root, or have root make a group for this user and start sandbar in it: "+
		"cgcreate -t %d -a %d -g %s:/user-%d, then cgexec -g %s:/user-%d sandbar …", uid, uid, set, uid, set, uid)
}

// probe makes a group in h, and has a thread enter it and return: the only
// proof that it works, since a container's filters, a cpuset without
// processors or missing permissions can each prevent it.
func (m *Manager) probe(h *hierarchy) error {
	dir := h.parent + "/" + m.instance + ".probe"
	if err := m.sys.Mkdir(dir); err != nil && err != unix.EEXIST {
		return err
	}
	err := onThread(func() (bool, error) {
		if err := m.sys.WriteFile(dir+"/tasks", "0"); err != nil {
			return true, err
		}
		err := writeAll(h.tasks, "0")
		return err == nil, err
	})
	return errors.Join(err, m.sys.Rmdir(dir))
}

// EnterThread moves the calling thread into the group's version 1 hierarchies,
// so that a process it then starts is born there; leave moves it back. It
// takes some microseconds. The caller has locked its goroutine to the thread,
// and when leave fails must not unlock it: the runtime then ends the thread
// with the goroutine. On a host without version 1 hierarchies both do nothing.
//
// It refuses the main thread of the process: memory that any thread of the
// daemon touches is charged to the group of its main thread, and the kernel
// would find the daemon itself when it looks for somebody to kill there.
func (g *Group) EnterThread() (leave func() error, err error) {
	if unix.Gettid() == unix.Getpid() {
		return nil, errors.New("cgroup: the main thread cannot enter a group")
	}
	var entered []*hierarchy
	leave = func() error {
		var errs []error
		for _, h := range entered {
			errs = append(errs, writeAll(h.tasks, "0"))
		}
		return errors.Join(errs...)
	}
	for _, h := range g.m.hierarchies {
		if h.version != 1 {
			continue
		}
		if err := g.m.sys.WriteFile(g.dir(h)+"/tasks", "0"); err != nil {
			return nil, errors.Join(kernelError("enter "+g.dir(h), err), leave())
		}
		entered = append(entered, h)
	}
	return leave, nil
}

// Tasks names the files of version 1 hierarchies with which another process of
// this one's groups does what EnterThread does: writing "0" to one of enter
// moves the writing thread into the group, and to the same of leave back to
// where this process is.
func (g *Group) TaskFiles() (enter, leave []string) {
	for _, h := range g.m.hierarchies {
		if h.version == 1 {
			enter, leave = append(enter, g.dir(h)+"/tasks"), append(leave, h.base+"/tasks")
		}
	}
	return enter, leave
}

// Start runs start so that the process which start clones is born in the
// group. attr is what start will use: on version 2 Start sets UseCgroupFD and
// CgroupFD for the time of the call; on version 1 start runs on another
// goroutine, locked to a thread that is in the group for that time. It must do
// no more than start the process. The thread that starts it goes on to other
// work and lives as long as this process, so that a parent-death signal in
// attr means the death of this process.
//
// After an error the group must be destroyed: there may be a process in it.
func (g *Group) Start(attr *syscall.SysProcAttr, start func() error) error {
	fd, err := g.FD()
	if err != nil {
		return err
	}
	if fd >= 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		defer func() { attr.UseCgroupFD, attr.CgroupFD = false, 0 }()
	}
	if !g.m.hasVersion1() {
		return start()
	}
	return onThread(func() (bool, error) {
		leave, err := g.EnterThread()
		if err != nil {
			return false, err
		}
		err = start()
		if lerr := leave(); lerr != nil {
			return false, errors.Join(err, kernelError("return from "+g.name, lerr))
		}
		return true, err
	})
}

func (m *Manager) hasVersion1() bool {
	return slices.ContainsFunc(m.hierarchies, func(h *hierarchy) bool { return h.version == 1 })
}

// onThread runs f on a goroutine that is locked to a thread, which is not the
// process's main thread. When f does not find the thread good for other uses
// the thread ends with the goroutine.
func onThread(f func() (reusable bool, err error)) error {
	err := errors.New("cgroup: the function ended its goroutine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// This is the main thread: hold it, so that the next is another.
			err = onThread(f)
			runtime.UnlockOSThread()
			return
		}
		var reusable bool
		if reusable, err = f(); reusable {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return err
}

func writeAll(w interface{ Write([]byte) (int, error) }, data string) error {
	_, err := w.Write([]byte(data))
	return errnoOf(err)
}
