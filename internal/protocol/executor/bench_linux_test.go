package executor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// BenchmarkRun measures /run of "true" over one persistent connection.
func BenchmarkRun(b *testing.B) {
	r := newReal(b, Options{})
	for b.Loop() {
		r.post("/run", `{"cmd":"true"}`)
	}
}

// BenchmarkRunStreaming measures a program that prints as fast as possible to a client that only
// reads, by the length of lines.
func BenchmarkRunStreaming(b *testing.B) {
	const size = 256 << 20
	for _, length := range []int{16, 128, 1024} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			r := newReal(b, Options{})
			b.SetBytes(size)
			cmd := fmt.Sprintf("line=$(head -c %d /dev/zero | tr '\\0' x); yes $line | head -c %d", length-1, size)
			body, _ := json.Marshal(m{"cmd": cmd})
			for b.Loop() {
				resp := r.do(r.request(http.MethodPost, "/run_streaming", bytes.NewReader(body)))
				lines := 0
				for in := bufio.NewReaderSize(resp.Body, 1<<20); ; {
					line, err := in.ReadSlice('\n')
					if err != nil {
						break
					}
					if bytes.HasPrefix(line, []byte(`data: {"stream"`)) {
						lines++
					}
				}
				resp.Body.Close()
				if lines != size/length {
					b.Fatalf("%d lines of %d", lines, size/length)
				}
			}
		})
	}
}

// BenchmarkFiles measures uploads and downloads through /files.
func BenchmarkFiles(b *testing.B) {
	const size = 1 << 30
	r := newReal(b, Options{})
	put := func() {
		a := r.send(r.request(http.MethodPut, "/files?path=/tmp/big", io.LimitReader(zeros{}, size)))
		if a.status > 299 {
			b.Fatal(a.status, a.body)
		}
	}
	b.Run("in", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			put()
		}
	})
	b.Run("out", func(b *testing.B) {
		put()
		b.SetBytes(size)
		for b.Loop() {
			resp := r.do(r.request(http.MethodGet, "/files?path=/tmp/big", nil))
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 1<<20))
			resp.Body.Close()
			if n != size || err != nil {
				b.Fatal(n, err)
			}
		}
	})
}

// BenchmarkCapture measures the storing of a background process's output.
func BenchmarkCapture(b *testing.B) {
	chunk := bytes.Repeat(append(bytes.Repeat([]byte{'x'}, 79), '\n'), 400)
	l := newTestStore(10000, 8<<20)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		l.Output(sandbar.Chunk{Stream: sandbar.Stdout, Data: chunk})
	}
}
