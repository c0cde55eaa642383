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
	r.RemoteAddr = "127.0.0.1:40000"
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
	f, err := Pool(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "secret")
	claim := newPool(t, path)
	// None of these is a claim.
	for _, headers := range [][]string{
		nil,
		{"Authorization: Basic a"},
		{"Authorization: Bearer "},
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "Authorization: Bearer bbbbbbbbbbbbbbbb"},
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "Origin: http://page.test"},
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "Sec-Fetch-Site: cross-site"},
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "Sec-Fetch-Site: same-origin"},
		{"Authorization: Bearer aaaaaaaaaaaaaaa"}, // too short
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "X-Forwarded-For: 192.0.2.1"},
		{"Authorization: Bearer aaaaaaaaaaaaaaaa", "Forwarded: for=192.0.2.1"},
		{"Authorization: Bearer " + strings.Repeat("a", maxSecret+1)},
		{"Authorization: Bearer  padded-with-a-space"},
	} {
		if err := claim(bearing(headers...)); sandbar.CodeOf(err) != sandbar.Unauthenticated {
			t.Errorf("%q: %v", headers, err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("a refused request left a file: %v", err)
	}
	if err := claim(bearing("Authorization: Bearer the-first-of-all-claims")); err != nil {
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
		if err := f(bearing("Authorization: Bearer the-first-of-all-claims")); err != nil {
			t.Errorf("%d: the secret: %v", i, err)
		}
		if err := f(bearing("Authorization: Bearer the-first-of-all-claims", "Origin: http://page.test")); err != nil {
			t.Errorf("%d: a browser that knows the secret: %v", i, err)
		}
		if err := f(bearing("Authorization: Bearer the-second-of-all-claims")); sandbar.CodeOf(err) != sandbar.Unauthenticated {
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
		" secret\n":                      sandbar.Invalid, // can be guessed
		" the-secret-of-a-pool\n":        "",
		strings.Repeat("x", maxSecret+1): sandbar.Invalid,
		strings.Repeat("x", 1<<20):       sandbar.Invalid,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Pool(path, nil)
		if sandbar.CodeOf(err) != code {
			t.Errorf("%.20q: %v", content, err)
		}
		if err == nil && f(bearing("Authorization: Bearer the-secret-of-a-pool")) != nil {
			t.Errorf("%q: the secret is refused", content)
		}
	}
	if _, err := Pool(t.TempDir(), nil); sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("a directory: %v", err)
	}
}

// TestPoolCannotSave tests that a claim that cannot be saved fails: after a restart anybody could
// make another.
func TestPoolCannotSave(t *testing.T) {
	dir := t.TempDir()
	blocker := filepath.Join(dir, "blocker")
	claim := newPool(t, filepath.Join(blocker, "secret"))
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claim(bearing("Authorization: Bearer the-first-of-all-claims")); sandbar.CodeOf(err) != sandbar.Internal {
		t.Fatalf("%v", err)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	if err := claim(bearing("Authorization: Bearer the-second-of-all-claims")); err != nil {
		t.Errorf("the next claim: %v", err)
	}
}

// TestPoolClaims tests that from other machines only the operator's token can claim.
func TestPoolClaims(t *testing.T) {
	const bearer = "Authorization: Bearer the-secret-of-a-pool"
	const operators = "the-token-of-the-operator"
	for name, tt := range map[string]struct {
		may     func(*http.Request) bool
		peer    string
		headers []string
		claims  bool
	}{
		"loopback":              {nil, "127.0.0.1:1", nil, true},
		"loopback, version 6":   {nil, "[::1]:1", nil, true},
		"loopback, mapped":      {nil, "[::ffff:127.0.0.1]:1", nil, true},
		"elsewhere":             {nil, "192.0.2.1:1", nil, false},
		"elsewhere, private":    {nil, "10.0.0.1:1", nil, false},
		"elsewhere, version 6":  {nil, "[2001:db8::1]:1", nil, false},
		"no address":            {nil, "", nil, false},
		"a header is no token":  {nil, "192.0.2.1:1", []string{ClaimHeader + ": "}, false},
		"the operator's token":  {ClaimWith(operators), "192.0.2.1:1", []string{ClaimHeader + ": " + operators}, true},
		"another token":         {ClaimWith(operators), "192.0.2.1:1", []string{ClaimHeader + ": " + operators + "x"}, false},
		"no token":              {ClaimWith(operators), "192.0.2.1:1", nil, false},
		"no token, on loopback": {ClaimWith(operators), "127.0.0.1:1", nil, false},
		"two tokens":            {ClaimWith(operators), "192.0.2.1:1", []string{ClaimHeader + ": " + operators, ClaimHeader + ": x"}, false},
		"no token to be had":    {ClaimWith(""), "127.0.0.1:1", []string{ClaimHeader + ": "}, false},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		claim, err := Pool(path, tt.may)
		if err != nil {
			t.Fatal(err)
		}
		r := bearing(append(tt.headers, bearer)...)
		r.RemoteAddr = tt.peer
		err = claim(r)
		if (err == nil) != tt.claims || err != nil && sandbar.CodeOf(err) != sandbar.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); (err == nil) != tt.claims {
			t.Errorf("%s: the file: %v", name, err)
		}
		if tt.claims { // after the claim, every client with the secret is allowed
			r := bearing(bearer)
			r.RemoteAddr = "192.0.2.7:1"
			if err := claim(r); err != nil {
				t.Errorf("%s: after the claim: %v", name, err)
			}
		}
	}
}

// TestPoolRace tests that one of many concurrent claims succeeds.
func TestPoolRace(t *testing.T) {
	claim := newPool(t, filepath.Join(t.TempDir(), "secret"))
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if claim(bearing("Authorization: Bearer "+strings.Repeat("x", MinSecret+i))) == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 1 {
		t.Errorf("%d claims succeeded", passed.Load())
	}
}
