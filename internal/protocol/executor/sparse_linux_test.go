package executor

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// TestSparseFiles tests that a file of 4 EiB without blocks is refused before the first byte, with
// the limit, and so is one that grows while it is open.
func TestSparseFiles(t *testing.T) {
	const most = 1 << 20
	r := newRig(t, backends.New(t), engine.Config{MaxFile: most}, Options{})
	r.wantRun("cd /tmp; truncate -s 4E hole; truncate -s 1048576 fits; truncate -s 1048577 over; truncate -s 1000 grows; stat -c %s hole",
		m{"stdout": "4611686018427387904\n", "stderr": "", "code": 0.0})
	const limit = "more than 1048576 bytes, holes included"
	for _, path := range []string{"/tmp/hole", "/tmp/over"} {
		for _, ranged := range []string{"", "bytes=0-9", "bytes=-10"} {
			q := r.request(http.MethodGet, "/files?path="+path, nil)
			if ranged != "" {
				q.Header.Set("Range", ranged)
			}
			if a := r.send(q); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, limit) || !strings.Contains(a.body, `"code":"too_large"`) {
				t.Errorf("GET %s %s: %d %.300q", path, ranged, a.status, a.body)
			}
		}
		if got := r.call("/read_file", m{"path": path}); got["content"] != "" || !strings.Contains(got["error"].(string), limit) {
			t.Errorf("/read_file %s: %.300v", path, got)
		}
	}
	if a := r.get("/files?path=/tmp/fits"); a.status != 200 || len(a.body) != most {
		t.Errorf("a file at the limit: %d, %d bytes", a.status, len(a.body))
	}
	if got := r.call("/read_file", m{"path": "/tmp/fits"}); len(got["content"].(string)) != most || got["error"] != nil {
		t.Errorf("/read_file at the limit: %d bytes, %v", len(got["content"].(string)), got["error"])
	}

	files := r.sandbox.FS()
	f, err := files.Open(t.Context(), "/tmp/grows")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.wantRun("truncate -s 4E /tmp/grows", m{"stdout": "", "stderr": "", "code": 0.0})
	total, buf := 0, make([]byte, 300_000)
	for err == nil {
		var n int
		n, err = f.Read(buf)
		total += n
	}
	if total != most || sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("a file that grows: %d bytes, %v", total, err)
	}
	if _, err := f.Seek(0, 2); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("its end: %v", err)
	}
}
