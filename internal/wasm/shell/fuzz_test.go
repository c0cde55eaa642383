package shell

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// Run returns a valid exit status for every script, leaves no goroutine, and no utility panics.
func FuzzScript(f *testing.F) {
	for _, cases := range [][]shellCase{dashCases, bashCases} {
		for _, c := range cases {
			f.Add(c.script)
		}
	}
	fs := memfs.New(memfs.Limits{Bytes: 1 << 20, Inodes: 2000})
	if err := Install(fs, nil); err != nil {
		f.Fatal(err)
	}
	for name, text := range fixtures {
		if !strings.Contains(name, "/") {
			if err := fs.WriteFile("/tmp", name, []byte(text), 0o644); err != nil {
				f.Fatal(err)
			}
		}
	}
	start := fs.Snapshot()
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) > 2000 {
			return
		}
		fs.Restore(start)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		var errs strings.Builder
		exit, err := Run(ctx, Config{FS: fs, Dir: "/tmp", Script: script, Stdin: strings.NewReader("in\nput\n"), Stdout: io.Discard, Stderr: &limited{b: &errs},
			Limits: Limits{Processes: 30, Bytes: 1 << 20, Words: 1000, Depth: 300}})
		if exit < 0 || exit > 255 || err != nil && ctx.Err() == nil {
			t.Errorf("%q: %d, %v", script, exit, err)
		}
		if strings.Contains(errs.String(), "internal error") {
			t.Errorf("%q: %s", script, &errs)
		}
	})
}

// limited stores the beginning of the output.
type limited struct{ b *strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len() < 1<<16 {
		l.b.Write(p)
	}
	return len(p), nil
}
