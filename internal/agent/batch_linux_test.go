package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// FSReadFiles refuses files of /proc and files that are not regular.
func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	b := fileBatch{a: &agent{dir: dir}, dir: -1, maxBytes: 4, buffers: new(buffers)}
	paths := []string{file, "/proc/self/status", "file", "/proc/self/status", pipe, "/dev/null", dir, dir + "/", "file/", "/"}
	want := []wire.FileContent{{Complete: true, Bytes: []byte("text")}, {Errno: uint32(unix.EACCES)}, {Complete: true, Bytes: []byte("text")},
		{Errno: uint32(unix.EACCES)}, {Errno: uint32(unix.ENXIO)}, {Errno: uint32(unix.ENXIO)}, {Errno: uint32(unix.EISDIR)},
		{Errno: uint32(unix.EISDIR)}, {Errno: uint32(unix.EISDIR)}, {Errno: uint32(unix.EISDIR)}}
	got, err := wire.DecodeFileContents(b.readAll(nil, paths))
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if b.dir != -1 {
		t.Error("a directory remains open")
	}
	// A file that is one byte too long is never reported as complete.
	b.maxBytes = 3
	got, err = wire.DecodeFileContents(b.readAll(nil, []string{file}))
	if err != nil || len(got) != 1 || got[0].Complete || string(got[0].Bytes) != "tex" {
		t.Errorf("%v, %v", got, err)
	}
}

// BenchmarkTree lists and reads 256 small files of one directory.
func BenchmarkTree(b *testing.B) {
	dir := b.TempDir()
	var paths []string
	for i := range wire.MaxReadPaths {
		path := filepath.Join(dir, fmt.Sprint("file", i))
		if err := os.WriteFile(path, make([]byte, 375), 0o644); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, path)
	}
	a := &agent{}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.fsReadDir(dir, "", maxListing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		mem := new(buffers)
		for b.Loop() {
			f := fileBatch{a: a, dir: -1, maxBytes: 32 << 10, buffers: mem}
			mem.reply = f.readAll(mem.reply[:0], paths)
		}
	})
}
