package executor

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func bearing(headers ...string) *http.Request {
	r, _ := http.NewRequest(http.MethodPost, "http://test/run", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestStatic(t *testing.T) {
	for _, tt := range []struct {
		secret  string
		headers []string
		pass    bool
	}{
		{"x", []string{"Authorization: Bearer x"}, true},
		{"x", nil, false},
		{"x", []string{"Authorization: Bearer y"}, false},
		{"x", []string{"Authorization: Bearer xx"}, false},
		{"x", []string{"Authorization: Bearer "}, false},
		{"x", []string{"Authorization: bearer x"}, false},
		{"x", []string{"Authorization: BEARER x"}, false},
		{"x", []string{"Authorization: Bearer  x"}, false},
		{"x", []string{"Authorization: Basic x"}, false},
		{"x", []string{"Authorization: x"}, false},
		{"x", []string{"Authorization: Bearer x", "Authorization: Bearer x"}, false},
		{"", []string{"Authorization: Bearer "}, false},
		{"", nil, false},
	} {
		err := Static(tt.secret)(bearing(tt.headers...))
		if (err == nil) != tt.pass || err != nil && sandbar.CodeOf(err) != sandbar.Unauthenticated {
			t.Errorf("secret %q, %q: %v", tt.secret, tt.headers, err)
		}
	}
}

func newPool(t *testing.T, path string) func(*http.Request) error {
	t.Helper()
	f, err := Pool(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "secret")
	claim := newPool(t, path)
	// None of these claims.
	for _, headers := range [][]string{
		nil,
		{"Authorization: Basic a"},
		{"Authorization: Bearer "},
		{"Authorization: Bearer a", "Authorization: Bearer b"},
		{"Authorization: Bearer a", "Origin: http://page.test"},
		{"Authorization: Bearer a", "Sec-Fetch-Site: cross-site"},
		{"Authorization: Bearer a", "Sec-Fetch-Site: same-origin"},
		{"Authorization: Bearer " + strings.Repeat("a", maxSecret+1)},
		{"Authorization: Bearer  padded"},
	} {
		if err := claim(bearing(headers...)); sandbar.CodeOf(err) != sandbar.Unauthenticated {
			t.Errorf("%q: %v", headers, err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("a refused request left a file: %v", err)
	}
	if err := claim(bearing("Authorization: Bearer first")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		path string
		mode os.FileMode
	}{{path, 0o600}, {filepath.Dir(path), 0o700 | os.ModeDir}} {
		if info, err := os.Stat(p.path); err != nil || info.Mode() != p.mode {
			t.Errorf("%s: %v, want mode %v", p.path, err, p.mode)
		}
	}
	again := newPool(t, path) // after a restart
	for i, f := range []func(*http.Request) error{claim, again} {
		if err := f(bearing("Authorization: Bearer first")); err != nil {
			t.Errorf("%d: the secret: %v", i, err)
		}
		if err := f(bearing("Authorization: Bearer first", "Origin: http://page.test")); err != nil {
			t.Errorf("%d: a browser that knows the secret: %v", i, err)
		}
		if err := f(bearing("Authorization: Bearer second")); sandbar.CodeOf(err) != sandbar.Unauthenticated {
			t.Errorf("%d: another secret: %v", i, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

func TestPoolFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for content, code := range map[string]sandbar.Code{
		"":                               sandbar.Invalid,
		" \n\t":                          sandbar.Invalid,
		"a\nb":                           sandbar.Invalid,
		" secret\n":                      "",
		strings.Repeat("x", maxSecret+1): sandbar.Invalid,
		strings.Repeat("x", 1<<20):       sandbar.Invalid,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Pool(path)
		if sandbar.CodeOf(err) != code {
			t.Errorf("%.20q: %v", content, err)
		}
		if err == nil && f(bearing("Authorization: Bearer secret")) != nil {
			t.Errorf("%q: the secret is refused", content)
		}
	}
	if _, err := Pool(t.TempDir()); sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("a directory: %v", err)
	}
}

// A claim that cannot be saved is no claim: after a restart anybody could make
// another.
func TestPoolCannotSave(t *testing.T) {
	dir := t.TempDir()
	blocker := filepath.Join(dir, "blocker")
	claim := newPool(t, filepath.Join(blocker, "secret"))
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claim(bearing("Authorization: Bearer first")); sandbar.CodeOf(err) != sandbar.Internal {
		t.Fatalf("%v", err)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	if err := claim(bearing("Authorization: Bearer second")); err != nil {
		t.Errorf("the next claim: %v", err)
	}
}

// Of many who come first, one is first.
func TestPoolRace(t *testing.T) {
	claim := newPool(t, filepath.Join(t.TempDir(), "secret"))
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if claim(bearing("Authorization: Bearer "+strings.Repeat("x", i+1))) == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 1 {
		t.Errorf("%d claims succeeded", passed.Load())
	}
}
