package iii

import (
	"fmt"
	"io"
	"testing"
)

func BenchmarkCreateExecStop(b *testing.B) {
	c := newReal(b, Options{}).connect()
	for b.Loop() {
		id := c.create()
		c.sh(id, "true")
		c.call("sandbox::stop", object{"sandbox_id": id, "wait": true})
	}
}

func BenchmarkExec(b *testing.B) {
	c := newReal(b, Options{}).connect()
	id := c.create()
	for b.Loop() {
		c.sh(id, "true")
	}
}

func BenchmarkUpload(b *testing.B) {
	c := newReal(b, Options{}).connect()
	id := c.create()
	b.SetBytes(100 << 20)
	for b.Loop() {
		if m := c.put(id, "/tmp/f", io.LimitReader(zeros{}, 100<<20)); m.Error != nil {
			b.Fatal(m.Error)
		}
	}
}

func BenchmarkDownload(b *testing.B) {
	c := newReal(b, Options{}).connect()
	id := c.create()
	c.sh(id, "head -c 104857600 /dev/zero >/tmp/f")
	b.SetBytes(100 << 20)
	for b.Loop() {
		c.get(id, "/tmp/f", io.Discard)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkGrep searches 100 directories of 100 files each. The baseline runs
// in the same sandbox.
func BenchmarkGrep(b *testing.B) {
	c := newReal(b, Options{}).connect()
	id := c.create()
	c.tree(id, `i=0; for d in $(seq 100); do mkdir d$d; for f in $(seq 100); do echo "some text $d $f that is not long" >d$d/f$f; done; done`)
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			if got := c.call("sandbox::fs::grep", object{"sandbox_id": id, "path": "/tmp/t", "pattern": "text 77 42 "}); len(got["matches"].([]any)) != 1 {
				b.Fatal(got)
			}
		}
	})
	b.Run("grep -r", func(b *testing.B) {
		for b.Loop() {
			if got := c.sh(id, "grep -rn 'text 77 42 ' /tmp/t"); got == "" {
				b.Fatal(fmt.Sprint(got))
			}
		}
	})
}
