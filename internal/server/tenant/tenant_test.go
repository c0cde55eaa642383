package tenant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newToken(name, tenant string, role sandbar.Role) Token {
	return Token{Name: name, Tenant: tenant, Role: role, Hash: HashOf("secret-" + name), Created: time.Now().UTC()}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s := Open(path, nil)
	t.Cleanup(s.Close)
	return s
}

// A token is found from its creation until it is revoked, without a restart of the store.
func TestTokensComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	s := open(t, path)
	if _, _, ok, err := s.Find("secret-ci"); ok || err != nil {
		t.Fatal("found a token without a file", err)
	}
	for _, tok := range []Token{newToken("ci", "a", sandbar.RoleUser), newToken("own", sandbar.DefaultTenant, sandbar.RoleAdmin)} {
		if err := Create(path, tok); err != nil {
			t.Fatal(err)
		}
	}
	c, valid, ok, err := s.Find("secret-ci")
	if want := (sandbar.Client{Name: "ci", Tenant: "a", Role: sandbar.RoleUser}); !ok || err != nil || c != want {
		t.Fatalf("found %+v, %v, %v", c, ok, err)
	}
	if c, _, _, _ := s.Find("secret-own"); !c.Operator() {
		t.Errorf("%+v is not the operator", c)
	}
	if c.Operator() {
		t.Errorf("%+v is the operator", c)
	}
	for _, wrong := range []string{"", "secret", "secret-ci ", HashOf("secret-ci")} {
		if _, _, ok, _ := s.Find(wrong); ok {
			t.Errorf("%q is a token", wrong)
		}
	}
	_, other, _, _ := s.Find("secret-own")
	if err := Revoke(path, "ci"); err != nil {
		t.Fatal(err)
	}
	<-valid.Done() // the store looks by itself
	if _, _, ok, err := s.Find("secret-ci"); ok || err != nil {
		t.Error("found a revoked token", err)
	}
	if other.Err() != nil {
		t.Error("an unchanged token has ended")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error("the file has the mode", info.Mode(), err)
	}
	if b, _ := os.ReadFile(path); strings.Contains(string(b), "secret-") {
		t.Error("the file has a token")
	}
}

func TestExpiry(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	tok := newToken("short", "a", sandbar.RoleUser)
	end := time.Now().Add(300 * time.Millisecond)
	tok.Expires = &end
	if err := Create(path, tok); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	_, valid, ok, err := s.Find("secret-short")
	if time.Now().Before(end) && (!ok || err != nil) {
		t.Fatal("not found before its end:", err)
	}
	if ok {
		<-valid.Done()
	}
	if time.Now().Before(end) {
		t.Error("ended too early")
	}
	if _, _, ok, err := s.Find("secret-short"); ok || sandbar.CodeOf(err) != sandbar.Unauthenticated || !strings.Contains(err.Error(), "expired") {
		t.Error("an expired token is found, or the reason is missing:", err)
	}
}

// A damaged file refuses all its tokens, also those that were valid before, and says why.
func TestDamagedFile(t *testing.T) {
	long := strings.Repeat("x", 64)
	token := func(more string) string {
		return `{"format":1,"tokens":[{"name":"ci","tenant":"a","role":"user","sha256":"` + HashOf("secret-ci") + `","created":"2026-11-26T00:00:00Z"` + more + `}]}`
	}
	for name, content := range map[string]string{
		"empty": "", "cut": token("")[:40], "trailing": token("") + "{}", "field": token(`,"more":1`),
		"format": strings.Replace(token(""), `"format":1`, `"format":2`, 1),
		"role":   strings.Replace(token(""), `"user"`, `"root"`, 1), "no role": strings.Replace(token(""), `"user"`, `""`, 1),
		"tenant": strings.Replace(token(""), `"a"`, `""`, 1), "name": strings.Replace(token(""), `"ci"`, `"`+long+`"`, 1),
		"hash": strings.Replace(token(""), HashOf("secret-ci"), "00", 1), "large": token("") + strings.Repeat(" ", maxFile),
		"twice": strings.Replace(token(""), `[`, `[`+strings.TrimSuffix(strings.TrimPrefix(token(""), `{"format":1,"tokens":[`), "]}")+`,`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			if err := Create(path, newToken("ci", "a", sandbar.RoleUser)); err != nil {
				t.Fatal(err)
			}
			s := open(t, path)
			_, valid, ok, _ := s.Find("secret-ci")
			if !ok {
				t.Fatal("not found")
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, ok, err := s.Find("secret-ci")
			if ok || sandbar.CodeOf(err) != sandbar.Unavailable || !strings.Contains(err.Error(), path) {
				t.Fatal("found, or no reason:", err)
			}
			if valid.Err() == nil {
				t.Error("its connections go on")
			}
			if err := Create(path, newToken("other", "a", sandbar.RoleUser)); sandbar.CodeOf(err) != sandbar.Unavailable {
				t.Error("a damaged file was changed:", err)
			}
			if b, _ := os.ReadFile(path); string(b) != content {
				t.Error("the content has changed")
			}
			if err := os.WriteFile(path, []byte(token("")), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, ok, err := s.Find("secret-ci"); !ok {
				t.Error("not found after the repair:", err)
			}
		})
	}
	t.Run("open to others", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), FileName)
		if err := errors.Join(os.WriteFile(path, []byte(token("")), 0o600), os.Chmod(path, 0o640)); err != nil {
			t.Fatal(err)
		}
		s := open(t, path)
		if _, _, ok, err := s.Find("secret-ci"); ok || sandbar.CodeOf(err) != sandbar.Unavailable {
			t.Error("found:", err)
		}
	})
}

// Commands that change the file at the same time lose no change, and stop at the bound.
func TestConcurrentChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	var work sync.WaitGroup
	for i := range 20 {
		work.Go(func() {
			name := fmt.Sprint("t", i)
			if err := Create(path, newToken(name, "a", sandbar.RoleUser)); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := Revoke(path, name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if all, err := Read(path); len(all) != 10 || err != nil {
		t.Errorf("%d tokens, %v", len(all), err)
	}
	if err := Create(path, newToken("t1", "b", sandbar.RoleUser)); sandbar.CodeOf(err) != sandbar.Exists {
		t.Error(err)
	}
	var many []Token
	for i := range MaxTokens {
		many = append(many, newToken(fmt.Sprint("n", i), "a", sandbar.RoleReadOnly))
	}
	if err := replace(path, nil, many); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, newToken("more", "a", sandbar.RoleUser)); sandbar.CodeOf(err) != sandbar.Exhausted {
		t.Error(err)
	}
}
