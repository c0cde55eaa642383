package dockerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// What the engine is for: it answers, it crashes, it comes back with what it
// had, and when it is stopped nothing of it is left on the host.
func TestLife(t *testing.T) {
	testenv.Need(t, testenv.Docker)
	ctx := context.Background()
	e, err := dockerd.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if e != nil {
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
		}
		e = nil
	}
	defer stop()
	if err := e.Import(ctx, emptyRoot(t), "nothing:much"); err != nil {
		t.Error(err)
	}
	if err := e.Crash(); err != nil {
		t.Fatal(err)
	}
	if names, err := e.Containers(ctx); err == nil {
		t.Errorf("an engine that crashed answers: %v", names)
	}
	if err := e.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if names, err := e.Containers(ctx); err != nil || len(names) != 0 {
		t.Errorf("the containers of an engine without any: %v, %v", names, err)
	}
	if names, err := e.Volumes(ctx); err != nil || len(names) != 0 {
		t.Errorf("the volumes of an engine without any: %v, %v", names, err)
	}
	dir := e.Dir()
	stop()
	if left := remains(dir); len(left) != 0 {
		t.Errorf("this remains of the engine: %v", left)
	}
}

// emptyRoot is an archive with one file.
func emptyRoot(t *testing.T) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// remains lists what of the host names the directory of an engine.
func remains(dir string) (left []string) {
	if _, err := os.Stat(dir); err == nil {
		left = append(left, dir)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			left = append(left, "mount "+line)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range processes {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(dir)) {
			left = append(left, p)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == filepath.Base(dir) {
			left = append(left, path)
		}
		return nil
	})
	slices.Sort(left)
	return left
}
