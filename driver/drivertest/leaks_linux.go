package drivertest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// lookAtHost adds processes, mounts, cgroups, network namespaces and descriptors. Other tests use
// the same host, so only these count: descendants of this process, processes with the suite's
// token, and names with one of its sandbox ids or in its directory.
func (s *suite) lookAtHost(t traces, dir string) {
	s.lookAtProcesses(t)
	s.lookAtMounts(t, dir)
	s.lookAtGroups(t, dir)
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && !strings.HasPrefix(to, "/proc/") {
			t["descriptor "+fd.Name()+": "+to] = ""
		}
	}
}

func (s *suite) lookAtProcesses(t traces) {
	parent := map[int]int{}
	name, state := map[int]string{}, map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		end := bytes.LastIndexByte(stat, ')')
		if f := strings.Fields(string(stat[end+1:])); len(f) > 1 {
			parent[pid], _ = strconv.Atoi(f[1])
			name[pid], state[pid] = string(stat[:end+1]), " "+f[0]
		}
	}
	for pid := range name {
		if pid != os.Getpid() && (descends(pid, parent) || s.carriesToken(pid)) {
			t["process: "+name[pid]] = state[pid]
		}
	}
}

// descends reports whether a process is a descendant of this process.
func descends(pid int, parent map[int]int) bool {
	for range 1000 {
		if pid = parent[pid]; pid == os.Getpid() {
			return true
		}
		if pid <= 1 {
			break
		}
	}
	return false
}

// carriers lists the host's live processes with a token in their initial environment. The
// environment of a zombie is empty.
func carriers(token string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && bytes.Contains(b, []byte(token)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *suite) carriesToken(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(b, []byte(variable+"="+s.token))
}

func (s *suite) lookAtMounts(t traces, dir string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if s.own(line, dir) {
			t["mount: "+strings.TrimSpace(line)] = ""
		}
	}
}

func (s *suite) lookAtGroups(t traces, dir string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if s.own(path, dir) {
			t["control group: "+path] = ""
		}
		return nil
	})
}
