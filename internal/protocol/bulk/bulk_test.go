package bulk

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// response is a response that counts the calls of before.
type response struct {
	http.ResponseWriter
	before func() error
}

func (r response) ReadFrom(src io.Reader) (int64, error) {
	return ReadFrom(r.ResponseWriter, src, r.before)
}

// A file arrives as it is, whole and in part, from the kernel's copy and from a reader; before is
// called for each step, and its error ends the response.
func TestReadFrom(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var steps int
	var refusal error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := response{w, func() error { steps++; return refusal }}
		if r.URL.Path == "/reader" {
			io.Copy(out, struct{ io.Reader }{strings.NewReader(string(content))})
			return
		}
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		http.ServeContent(out, r, "file", time.Time{}, f)
	}))
	defer server.Close()
	get := func(path, span string) []byte {
		q, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if span != "" {
			q.Header.Set("Range", span)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if refusal == nil && err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		path, span string
		want       []byte
		steps      int
	}{{"/file", "", content, 3}, {"/file", "bytes=100-5000099", content[100:5000100], 2}, {"/reader", "", content, len(content) / pieceSize}} {
		steps = 0
		if got := get(tt.path, tt.span); !bytes.Equal(got, tt.want) || steps < tt.steps {
			t.Errorf("%s %s: %d bytes in %d steps, want %d in %d", tt.path, tt.span, len(got), steps, len(tt.want), tt.steps)
		}
	}
	refusal = errors.New("too late")
	if got := get("/file", ""); len(got) != 0 {
		t.Errorf("%d bytes arrived after an error", len(got))
	}
}
