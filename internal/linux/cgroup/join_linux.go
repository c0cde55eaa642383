package cgroup

import (
	"os"

	"golang.org/x/sys/unix"
)

// Doors opens the files by which a process enters the group: one that writes "0"
// to each is in it, and so is what it starts from then on. They are the caller's
// to close. What counts is who opened them, so the process that writes needs no
// right of its own. On version 2 a write may take the kernel some milliseconds,
// which CLONE_INTO_CGROUP does not; it is for a process that is there already.
func (g *Group) JoinFiles() ([]*os.File, error) {
	var doors []*os.File
	for _, h := range g.m.hierarchies {
		name := g.dir(h) + "/cgroup.procs"
		if h.version == 1 {
			name = g.dir(h) + "/tasks" // the way in that takes no grace period
		}
		fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
		if err != nil {
			for _, f := range doors {
				f.Close()
			}
			return nil, kernelError("open "+name, err)
		}
		doors = append(doors, os.NewFile(uintptr(fd), name))
	}
	return doors, nil
}
