package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

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
			f := fileBatch{a: a, dir: -1, most: 32 << 10, buffers: mem}
			mem.reply = f.readAll(mem.reply[:0], paths)
		}
	})
}
