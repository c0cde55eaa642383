package executor

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// allocated returns the bytes that this process, server and client, allocates during f. Unlike the
// heap's size it does not depend on the garbage collector.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestWriteFileInConstantMemory tests that 100 MiB of content are streamed into the file, whichever
// field comes first.
func TestWriteFileInConstantMemory(t *testing.T) {
	r := newReal(t, Options{})
	const size = 100 << 20
	for name, parts := range map[string][2]string{
		"path first":    {`{"path":"/tmp/large","content":"`, `"}`},
		"content first": {`{"content":"`, `","path":"/tmp/large"}`},
	} {
		body := io.MultiReader(strings.NewReader(parts[0]), io.LimitReader(letters{}, size), strings.NewReader(parts[1]))
		var a answer
		grew := allocated(func() { a = r.send(r.request(http.MethodPost, "/write_file", body)) })
		if a.status != 200 || a.body != "{\"success\":true}\n" {
			t.Fatalf("%s: %d %q", name, a.status, a.body)
		}
		if grew > size/8 {
			t.Errorf("%s: %d bytes were allocated for a content of %d", name, grew, size)
		}
		r.wantRun("stat -c %s-%a /tmp/large; tail -c 3 /tmp/large; ls -A ~; chmod 600 /tmp/large", m{"stdout": "104857600-644\nxxx", "stderr": "", "code": 0.0})
		// An existing file keeps its mode.
		r.wantJSON("/write_file", parts[0]+strings.Repeat("y", 3*bufferSize)+parts[1], `{"success":true}`)
		r.wantRun("stat -c %s-%a /tmp/large; ls -A ~; rm /tmp/large", m{"stdout": "196608-600\n", "stderr": "", "code": 0.0})
	}
}

// letters is an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestWriteFileLeavesNothing tests that a failed request whose long content came first leaves no
// file behind.
func TestWriteFileLeavesNothing(t *testing.T) {
	r := newReal(t, Options{})
	long := strings.Repeat("x", 4*bufferSize)
	r.run("ln -s loop /tmp/loop; echo old > /tmp/old")
	for path, want := range map[string]string{
		"/tmp/none/x": "open /tmp/none/x: no such file or directory",
		"/tmp":        "open /tmp: is a directory",
		"/tmp/loop":   "open /tmp/loop: too many levels of symbolic links",
		"":            "open : no such file or directory",
	} {
		r.wantJSON("/write_file", `{"content":"`+long+`","path":"`+path+`"}`, fmt.Sprintf(`{"success":false,"error":%q}`, want))
	}
	for _, body := range []string{`{"content":"` + long + `","path":7}`, `{"content":"` + long + `"`, `{"content":"` + long + `\ud800","path":"/tmp/old"}`} {
		if a := r.post("/write_file", body); a.status != 400 {
			t.Errorf("%.20s: %d %q", body, a.status, a.body)
		}
	}
	r.wantRun("ls -A ~ /tmp; cat /tmp/old", m{"stdout": "/home/user:\n\n/tmp:\nloop\nold\nold\n", "stderr": "", "code": 0.0})
}

// TestMaxContent tests that the size limit is a setting, and that the refusal names it.
func TestMaxContent(t *testing.T) {
	r, _ := newFaulty(t, Options{MaxContent: 200_000, MaxJSON: 1000})
	for _, first := range []string{"path", "content"} {
		body := func(n int) string {
			if first == "path" {
				return `{"path":"/tmp/x","content":"` + strings.Repeat(`\n`, n) + `"}`
			}
			return `{"content":"` + strings.Repeat(`\n`, n) + `","path":"/tmp/x"}`
		}
		r.wantJSON("/write_file", body(200_000), `{"success":true}`)
		a := r.post("/write_file", body(200_001))
		if a.status != 413 || a.body != "Request too large: at most 200000 bytes of content are accepted (executor.max_content)\n" {
			t.Errorf("%s first: %d %q", first, a.status, a.body)
		}
		if got := r.call("/read_file", m{"path": "/tmp/x"}); len(got["content"].(string)) != 200_000 {
			t.Errorf("%s first: %d bytes are in the file", first, len(got["content"].(string)))
		}
		r.wantJSON("/list_dir", `{"path":"/home/user"}`, `{"entries":[]}`)
	}
}

// TestRunInBoundedMemory tests that a program that prints 300 MB uses only the memory of one
// response, which says that output is missing.
func TestRunInBoundedMemory(t *testing.T) {
	r := newReal(t, Options{})
	const limit = 64 << 20
	var text string
	grew := allocated(func() {
		resp := r.do(r.request(http.MethodPost, "/run", strings.NewReader(`{"cmd":"head -c 300000000 /dev/zero | tr '\\0' x; echo never"}`)))
		defer resp.Body.Close()
		if n, err := io.Copy(tail{&text}, resp.Body); err != nil || n < limit || n > limit+1000 {
			t.Errorf("an answer of %d bytes, %v", n, err)
		}
	})
	if grew > limit+limit/4 {
		t.Errorf("%d bytes were allocated for an answer of at most %d", grew, limit)
	}
	want := `x","stderr":"","code":-1,"error":"output limit exceeded after 67108864 bytes; /run_streaming has no limit","truncated":true}` + "\n"
	if !strings.HasSuffix(text, want) {
		t.Errorf("the answer ends with %q", text)
	}
}

// tail keeps the last bytes written to it.
type tail struct{ of *string }

func (t tail) Write(p []byte) (int, error) {
	s := *t.of + string(p[max(0, len(p)-300):])
	*t.of = s[max(0, len(s)-300):]
	return len(p), nil
}
