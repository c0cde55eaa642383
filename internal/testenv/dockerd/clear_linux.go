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

// attr has the kernel ask the engine to end when the test does: it then ends
// its containers itself.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// clear removes what an engine leaves behind: shims of containers that it lost
// sight of, mounts, control groups and its directory.
func (e *Engine) clear() error {
	e.killShims()
	e.unmount()
	e.removeGroups()
	return os.RemoveAll(e.dir)
}

// killShims ends processes that were started for this engine: its directory,
// which nobody else has, stands in their arguments.
func (e *Engine) killShims() {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && bytes.Contains(args, []byte(e.dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
}

// unmount takes away what is mounted below the directory, the deepest first.
func (e *Engine) unmount() {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	lines := strings.Split(string(b), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH) // what stays makes removing the directory fail
		}
	}
}

// removeGroups removes the engine's own control groups, children first.
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
