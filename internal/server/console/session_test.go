package console

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// with returns a request with cookies, over TLS or not.
func with(https bool, cookies ...*http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
	if https {
		r.TLS = &tls.ConnectionState{}
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

func cookie(t *testing.T, s *Sessions, token string, https bool) *http.Cookie {
	t.Helper()
	c, err := s.Cookie(token, https)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A cookie is accepted unchanged, until its end, under its key and its name, and alone.
func TestSessions(t *testing.T) {
	s, other := NewSessions("the daemon's token"), NewSessions("another token")
	began := time.Now()
	s.now = func() time.Time { return began }
	plain, secure := cookie(t, s, "secret-token", false), cookie(t, s, "secret-token", true)
	if strings.Contains(plain.String(), "secret-token") || !plain.HttpOnly || plain.SameSite != http.SameSiteStrictMode || plain.Path != "/" || plain.Secure ||
		plain.Name != "sandbar_console" || plain.MaxAge != 12*60*60 || plain.Domain != "" {
		t.Errorf("%+v", plain)
	}
	if !secure.Secure || secure.Name != "__Host-sandbar_console" || secure.Path != "/" || secure.Domain != "" {
		t.Errorf("%+v", secure)
	}
	raw, err := base64.RawURLEncoding.DecodeString(plain.Value)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "secret-token") {
		t.Error("the token is readable in the cookie")
	}
	if again := cookie(t, s, "secret-token", false); again.Value == plain.Value {
		t.Error("two cookies are the same")
	}
	token, end, ok := s.Open(with(false, plain, &http.Cookie{Name: "other", Value: "x"}))
	if !ok || token != "secret-token" || end.Sub(began) > Lifetime || end.Sub(began) < Lifetime-time.Second {
		t.Errorf("%q %v %v", token, end.Sub(began), ok)
	}
	if token, _, ok := s.Open(with(true, secure, plain)); !ok || token != "secret-token" {
		t.Error("over TLS the cookie is refused beside one without the prefix")
	}
	forwarded := with(false, secure)
	forwarded.Header.Set("X-Forwarded-Proto", "https")
	if _, _, ok := s.Open(forwarded); !ok {
		t.Error("the cookie is refused behind a TLS proxy")
	}
	for name, r := range map[string]*http.Request{
		"no cookie":              with(false),
		"two cookies":            with(false, plain, plain),
		"a second, invalid one":  with(false, plain, &http.Cookie{Name: plain.Name, Value: "x"}),
		"an invalid one first":   with(false, &http.Cookie{Name: plain.Name, Value: "x"}, plain),
		"the plain one over TLS": with(true, plain),
		"the name of TLS":        with(false, secure),
		"the token itself":       with(false, &http.Cookie{Name: plain.Name, Value: "secret-token"}),
		"empty":                  with(false, &http.Cookie{Name: plain.Name}),
		"another key":            with(false, cookie(t, other, "secret-token", false)),
		"padding":                with(false, &http.Cookie{Name: plain.Name, Value: plain.Value + "="}),
		"cut":                    with(false, &http.Cookie{Name: plain.Name, Value: plain.Value[:len(plain.Value)-4]}),
	} {
		if token, _, ok := s.Open(r); ok || token != "" {
			t.Errorf("%s: accepted", name)
		}
	}
	for i := range raw {
		changed := []byte(string(raw))
		changed[i] ^= 1
		if _, _, ok := s.Open(with(false, &http.Cookie{Name: plain.Name, Value: base64.RawURLEncoding.EncodeToString(changed)})); ok {
			t.Errorf("accepted with byte %d changed", i)
		}
	}
	s.now = func() time.Time { return end.Add(-time.Second) }
	if _, _, ok := s.Open(with(false, plain)); !ok {
		t.Error("refused before its end")
	}
	s.now = func() time.Time { return end }
	if _, _, ok := s.Open(with(false, plain)); ok {
		t.Error("accepted after its end")
	}
	s.now = func() time.Time { return began }
	s.SetToken("another token")
	if _, _, ok := s.Open(with(false, plain)); ok {
		t.Error("accepted after the daemon's token has changed")
	}
	if _, _, ok := s.Open(with(false, cookie(t, other, "secret-token", false))); !ok {
		t.Error("a daemon with the same token refuses it")
	}
	if _, err := s.Cookie(strings.Repeat("x", maxToken+1), false); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Error(err)
	}
	if c := cookie(t, s, strings.Repeat("x", maxToken), true); len(c.String()) > 4096 {
		t.Errorf("a cookie of %d bytes", len(c.String()))
	}
}

// Failures take places of their address and of all; they return with time.
func TestLimiter(t *testing.T) {
	now := time.Now()
	l := newLimiter()
	l.now = func() time.Time { return now }
	fail := func(address string) time.Duration { _, wait := l.take(address); return wait }
	for i := range addressFailures {
		if wait := fail("192.0.2.1:1"); wait != 0 {
			t.Fatalf("failure %d: wait %v", i, wait)
		}
	}
	if wait := fail("192.0.2.1:2"); wait != addressEvery {
		t.Error("one failure too many: wait", wait)
	}
	if wait := fail("[::ffff:192.0.2.1]:3"); wait == 0 {
		t.Error("the address in its IPv6 form has places of its own")
	}
	for range addressFailures {
		fail("[2001:db8::1]:1")
	}
	if fail("[2001:db8::2]:1") == 0 || fail("[2001:db8:0:1::1]:1") != 0 {
		t.Error("a network of 64 bits is not counted as one address, or its neighbour is")
	}
	now = now.Add(addressEvery)
	if fail("192.0.2.1:1") != 0 || fail("192.0.2.1:1") == 0 {
		t.Error("not exactly one place has returned")
	}
	now = now.Add(time.Hour)
	for range 3 * addressFailures {
		giveBack, wait := l.take("192.0.2.1:1")
		if wait != 0 {
			t.Fatal("logins that succeed are bounded")
		}
		giveBack()
	}
	for i := range allFailures {
		if wait := fail("198.51.100." + strconv.Itoa(i) + ":1"); wait != 0 {
			t.Fatalf("failure %d of another address: wait %v", i, wait)
		}
	}
	for i := range 2 * maxAddresses {
		fail("203." + strconv.Itoa(i>>8) + "." + strconv.Itoa(i&255) + ".1:1")
	}
	if fail("100.64.0.1:1") == 0 {
		t.Error("the failures of all addresses together are not bounded")
	}
	if len(l.each) > maxAddresses+1 {
		t.Errorf("%d addresses are kept", len(l.each))
	}
	if fail("@") == 0 {
		t.Error("a UNIX socket has no bound")
	}
}
