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

// version1 tries the version 1 hierarchy of membership own.
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

// probe creates a group in h and moves a thread into it and back. Nothing less proves that it
// works: a container's seccomp filter, a cpuset without CPUs or missing permissions may each
// prevent it.
func (m *Manager) probe(h *hierarchy) error {
	dir, err := m.makeProbe(h)
	if err != nil {
		return err
	}
	err = onThread(func() (bool, error) {
		if err := m.sys.WriteFile(dir+"/tasks", "0"); err != nil {
			return true, err
		}
		err := writeAll(h.tasks, "0")
		return err == nil, err
	})
	return errors.Join(err, m.sys.Rmdir(dir))
}

// EnterThread moves the calling thread into the group's version 1 hierarchies, so that a process
// which it then clones starts there; leave moves it back. It takes microseconds. The caller must
// have locked its goroutine to the thread. If leave fails, the caller must not unlock it, so that
// the runtime ends the thread with the goroutine. On a host without version 1 both do nothing.
//
// It refuses the main thread: in version 1 the kernel charges memory of all threads to the cgroup
// of the process's main thread, so the OOM killer would consider the daemon itself a member of the
// sandbox's group.
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

// TaskFiles returns the files with which another process in the groups of this one can do what
// EnterThread does: writing "0" to a file of enter moves the writing thread into the group, and
// writing it to the corresponding file of leave moves the thread back.
func (g *Group) TaskFiles() (enter, leave []string) {
	for _, h := range g.m.hierarchies {
		if h.version == 1 {
			enter, leave = append(enter, g.dir(h)+"/tasks"), append(leave, h.base+"/tasks")
		}
	}
	return enter, leave
}

// Start calls start such that the process which start clones begins in the group. attr must be the
// attributes that start uses. In version 2 Start sets UseCgroupFD and CgroupFD for the duration of
// the call. In version 1 start runs on another goroutine, locked to a thread in the group, and must
// only start the process. That thread is reused and lives as long as this process, so a
// parent-death signal in attr means the death of this process.
//
// After an error the caller must destroy the group: it may contain a process.
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

// onThread runs f on a goroutine that is locked to a thread other than the main one. If f reports
// that the thread is not reusable, the thread ends with the goroutine.
func onThread(f func() (reusable bool, err error)) error {
	err := errors.New("cgroup: the function ended its goroutine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// lock the main thread, so that the next goroutine gets another
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
