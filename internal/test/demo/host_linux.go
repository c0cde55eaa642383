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

// adoptOrphans makes every process that the server leaves behind, however deep
// below it, a child of this one, so that none can be overlooked.
func adoptOrphans() {
	// It fails only on kernels older than any this runs on; then there is
	// nothing to see, and gc still looks.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// orphans lists children that are still running after the patience given. It
// kills them. Preconditions: this process waits for no child.
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

// reap collects the children that have ended.
func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

// children lists this process's children by number, with their names.
func children() map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …, where name can hold anything.
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

// detach keeps a terminal's signals from a command.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// terminal reports whether a file is a terminal.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
