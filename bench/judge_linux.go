package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// judgeProgram is where `make bench` builds go-judge, another service that runs programs in
// sandboxes. It keeps its containers between programs, and has no filter of system calls.
const judgeProgram = ".cache/bin/go-judge"

// judge starts go-judge with its own defaults, and returns a function that runs a program there.
// stop removes all that is left of it.
func judge(argv []string) (work func() error, stop func(), err error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "sandbar-bench-judge-")
	if err != nil {
		return nil, nil, err
	}
	group := filepath.Base(dir)
	c := exec.Command(judgeProgram, "-http-addr", addr, "-dir", dir, "-cgroup-prefix", group, "-silent", "-release")
	if err := c.Start(); err != nil {
		os.Remove(dir)
		return nil, nil, err
	}
	stop = func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		os.RemoveAll(dir)
		removeGroups(group)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	output := func(name string) map[string]any { return map[string]any{"name": name, "max": 1 << 20} }
	body, err := json.Marshal(map[string]any{"cmd": []any{map[string]any{
		"args": argv, "env": []string{"PATH=/usr/bin:/bin"}, "files": []any{map[string]any{"content": ""}, output("stdout"), output("stderr")},
		"cpuLimit": 60 * time.Second, "clockLimit": 60 * time.Second, "memoryLimit": 256 << 20, "procLimit": 64}}})
	if err != nil {
		stop()
		return nil, nil, err
	}
	work = func() error {
		r, err := client.Post("http://"+addr+"/run", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		var results []struct {
			Status string
			Files  struct{ Stdout, Stderr string }
		}
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(text, &results)
		}
		if err == nil && (len(results) != 1 || results[0].Status != "Accepted" || results[0].Files.Stdout != "hello world\n") {
			err = fmt.Errorf("go-judge: %.300s", text)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for err = work(); err != nil; err = work() {
		select {
		case <-ctx.Done():
			stop()
			return nil, nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return work, stop, nil
}

// removeGroups removes the control groups of this name in all hierarchies. They can be removed when
// their processes have ended.
func removeGroups(name string) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var dirs []string
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			roots, _ := filepath.Glob(pattern + name)
			for _, root := range roots {
				_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
					if err == nil && e.IsDir() {
						dirs = append(dirs, path)
					}
					return nil
				})
			}
		}
		if len(dirs) == 0 {
			return
		}
		for _, dir := range slices.Backward(dirs) {
			os.Remove(dir)
		}
	}
}
