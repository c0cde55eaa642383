package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): all orphaned
// descendants of the server become its children.
func adoptOrphans() {
	// It fails only before Linux 3.4. Then orphans finds nothing, and only gc searches.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// orphans kills and returns children that still run after patience. Precondition: no other
// goroutine waits for a child.
func orphans(patience time.Duration) []string {
	end := time.Now().Add(patience)
	for {
		reap()
		left := children()
		if len(left) == 0 || time.Now().After(end) {
			var names []string
			for pid, name := range left {
				names = append(names, fmt.Sprintf("%s (%d)", name, pid))
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return names
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reap reaps exited children.
func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

// children returns the names of this process's children by pid.
func children() map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		// "pid (name) state ppid …"; name can contain any character (proc_pid_stat(5)).
		text := string(b)
		open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		if open < 0 || shut < open {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
		fields := strings.Fields(text[shut+1:])
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			found[pid] = text[open+1 : shut]
		}
	}
	return found
}

// detach puts a command into its own process group, so that the terminal does not signal it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// terminal reports whether a file is a terminal.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
