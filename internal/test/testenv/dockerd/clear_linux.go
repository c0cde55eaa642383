package dockerd

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// attr makes the kernel send SIGTERM to the engine when the test process dies. The engine
// then stops its containers.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// clear removes leftovers of an engine: lost containers and their shims, mounts, cgroups,
// and its directory.
func (e *Engine) clear() error {
	e.killProcesses()
	e.unmount()
	e.removeGroups()
	return os.RemoveAll(e.dir)
}

// killProcesses kills the processes of this engine: those with its unique directory in
// their arguments, and those in its cgroups, such as a container that was created and not
// started when the engine crashed.
func (e *Engine) killProcesses() {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		groups, _ := os.ReadFile("/proc/" + entry.Name() + "/cgroup")
		if bytes.Contains(args, []byte(e.dir+"/")) || bytes.Contains(groups, []byte(":"+e.parent+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
		}
	}
}

// unmount unmounts the mounts below the directory, the deepest first.
func (e *Engine) unmount() {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	lines := strings.Split(string(b), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH) // a remaining mount makes RemoveAll fail
		}
	}
}

// removeGroups removes the engine's cgroups, children first.
func (e *Engine) removeGroups() {
	var groups []string
	name := filepath.Base(e.parent)
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		if strings.Contains(path+"/", "/"+name+"/") {
			groups = append(groups, path)
		}
		return nil
	})
	for i := len(groups) - 1; i >= 0; i-- {
		_ = syscall.Rmdir(groups[i])
	}
}
