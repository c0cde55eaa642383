package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
)

// Lifetime is the time from a login to the end of its session.
const Lifetime = 12 * time.Hour

const (
	// maxToken is the longest token that fits into a cookie, in bytes: browsers refuse cookies of
	// more than 4096 bytes.
	maxToken = 2048
	// purpose separates this use of the daemon's token from others, and names the format.
	purpose = "sandbar console session 1"
	// rounds is the cost of a key. A tenant's user has a cookie, with which guesses of the daemon's
	// token can be checked, so that guesses must be slow.
	rounds = 600_000
	// stampSize is the size of a session's end, in bytes: seconds since 1970, big endian.
	stampSize = 8
)

// Sessions seals and opens the cookies of browsers. Its methods may be called concurrently.
type Sessions struct {
	aead atomic.Pointer[func() cipher.AEAD] // makes the key at its first call
	now  func() time.Time
}

// NewSessions returns the sessions of the daemons that have a token.
func NewSessions(daemonToken string) *Sessions {
	s := &Sessions{now: time.Now}
	s.SetToken(daemonToken)
	return s
}

// SetToken replaces the daemon's token. Sessions under the old one end.
func (s *Sessions) SetToken(daemonToken string) {
	aead := sync.OnceValue(func() cipher.AEAD { return newAEAD(daemonToken) })
	s.aead.Store(&aead)
}

// newAEAD returns AES-256-GCM with the key of a daemon's token.
func newAEAD(daemonToken string) cipher.AEAD {
	key, err := pbkdf2.Key(sha256.New, daemonToken, []byte(purpose), rounds, 32)
	if err != nil {
		panic(err) // the parameters are constant and valid
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// Cookie returns the cookie of a new session with a token. https says that the browser reaches the
// daemon over TLS. TooLarge: the token does not fit into a cookie.
func (s *Sessions) Cookie(token string, https bool) (*http.Cookie, error) {
	if len(token) > maxToken {
		return nil, &sandbar.Error{Code: sandbar.TooLarge, Field: "token", Message: "the token has " + strconv.Itoa(len(token)) + " bytes, and a browser keeps at most " + strconv.Itoa(maxToken),
			Fix: "log in with a token that \"sandbar token create\" has made"}
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(s.now().Add(Lifetime).Unix()))
	sealed := (*s.aead.Load())().Seal(nil, nil, append(plain, token...), []byte(purpose))
	c := newCookie(base64.RawURLEncoding.EncodeToString(sealed), https)
	c.MaxAge = int(Lifetime / time.Second)
	return c, nil
}

// newCookie returns a cookie that scripts cannot read and that no other site causes to be sent.
func newCookie(value string, https bool) *http.Cookie {
	return &http.Cookie{Name: cookieName(https), Value: value, Path: "/", HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode}
}

// cookieName returns the name of the cookie. Over TLS browsers accept the prefixed name only from
// the host itself, so that no page below the host's domain can set it.
func cookieName(https bool) string {
	if https {
		return ports.SecureConsoleCookie
	}
	return ports.ConsoleCookie
}

// Open returns the token of a request's session and the session's end. ok is false without a valid
// session, and with two cookies of the name: one of them was set by another page of the domain.
func (s *Sessions) Open(r *http.Request) (token string, end time.Time, ok bool) {
	cookies := r.CookiesNamed(cookieName(ports.IsHTTPS(r)))
	if len(cookies) != 1 {
		return "", end, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookies[0].Value)
	if err != nil {
		return "", end, false
	}
	plain, err := (*s.aead.Load())().Open(nil, nil, sealed, []byte(purpose))
	if err != nil || len(plain) < stampSize {
		return "", end, false
	}
	end = time.Unix(int64(binary.BigEndian.Uint64(plain)), 0)
	if !s.now().Before(end) {
		return "", end, false
	}
	return string(plain[stampSize:]), end, true
}
