package cgroup

import (
	"os"

	"golang.org/x/sys/unix"
)

// JoinFiles opens the files through which a process can join the group: a process that writes "0"
// to each moves itself, and its later children, into the group. The kernel checks the rights of the
// process that opened the file, so the writer needs none (cgroups(7), delegation). In version 2 a
// write may take milliseconds, unlike CLONE_INTO_CGROUP; this is for processes that run already.
// The caller closes the files.
func (g *Group) JoinFiles() ([]*os.File, error) {
	var files []*os.File
	for _, h := range g.m.hierarchies {
		name := g.dir(h) + "/cgroup.procs"
		if h.version == 1 {
			name = g.dir(h) + "/tasks" // unlike cgroup.procs it needs no RCU grace period
		}
		fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, kernelError("open "+name, err)
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files, nil
}
