package drivertest

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// traces are the resources that a driver could leave behind. The key identifies the resource; the
// value has details for people, or is empty.
type traces map[string]string

// look lists the current traces. dir is the driver's runtime directory, "" for none.
func (s *suite) look(dir string) traces {
	t := traces{}
	for number, stack := range goroutines() {
		t[number] = stack
	}
	if dir != "" {
		filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				t["file: "+path] = ""
			}
			return nil
		})
	}
	s.lookAtHost(t, dir)
	if s.h.Traces != nil {
		for _, name := range s.h.Traces() {
			t["driver's own: "+name] = ""
		}
	}
	return t
}

// settle waits until only the traces of before are left. It returns those that remain after
// waitTimeout.
func (s *suite) settle(before traces, dir string) string {
	for end := time.Now().Add(s.waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for name, more := range s.look(dir) {
			if _, old := before[name]; !old {
				left = append(left, name+more)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			slices.Sort(left)
			return strings.Join(left[:min(len(left), 20)], "\n")
		}
	}
}

// goroutines returns the stacks of all goroutines by "goroutine NUMBER", without those of package
// testing and of the caller.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := map[string]string{}
	for i, g := range strings.Split(string(buf), "\n\n") {
		head, body, _ := strings.Cut(g, "\n")
		if i == 0 || strings.Contains(body, "testing.(*T).Run(") || strings.Contains(body, "testing.(*M).") ||
			strings.Contains(body, "os/signal.") || strings.Contains(body, "runtime.ReadTrace") {
			continue
		}
		number, _, _ := strings.Cut(head, " [") // the state in brackets changes
		stacks[number] = "\n" + body
	}
	return stacks
}

// own reports whether text names one of this suite's sandboxes or the runtime directory.
func (s *suite) own(text, dir string) bool {
	if dir != "" && strings.Contains(text, dir) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range strings.Split(text, "sb_")[1:] {
		if len(part) >= 26 && s.ids[sandbar.ID("sb_"+part[:26])] {
			return true
		}
	}
	return false
}

// residentBytes is the resident memory of this process; 0 if unknown.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var pages int64
	if f := strings.Fields(string(b)); len(f) > 1 {
		for _, d := range f[1] {
			pages = pages*10 + int64(d-'0')
		}
	}
	return pages * int64(os.Getpagesize())
}
