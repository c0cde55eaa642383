package executor

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// MinSecret is the shortest secret, in bytes: 16 random letters and digits cannot be guessed, even
// at a million guesses per second.
const MinSecret = 16

// maxSecret is the longest secret that can be claimed, in bytes.
const maxSecret = 4096

// ClaimHeader is the header with the operator's token for claims.
const ClaimHeader = "X-Sandbox-Claim"

var errUnauthorized = &sandbar.Error{Code: sandbar.Unauthenticated, Message: "the token is missing or wrong",
	Fix: `send exactly one header "Authorization: Bearer TOKEN"`}

// Static authorizes requests with the secret: exactly one header "Authorization: Bearer SECRET",
// compared in constant time. An empty secret authorizes nobody.
func Static(secret string) func(*http.Request) error {
	want := sha256.Sum256([]byte(secret))
	return func(r *http.Request) error {
		token, ok := bearer(r)
		if !ok || secret == "" || !sameSum(token, want) {
			return errUnauthorized
		}
		return nil
	}
}

// bearer returns the token of a request, false if it has none or several.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	return token, ok && token != ""
}

// sameSum compares in constant time, which reveals nothing about either side, not even a length.
func sameSum(token string, want [sha256.Size]byte) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// ClaimLocally allows claims from loopback connections without proxy headers: those of this
// machine's users.
func ClaimLocally(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// ClaimWith allows claims with the operator's token: exactly one header X-Sandbox-Claim, compared
// in constant time. An empty token allows none.
func ClaimWith(token string) func(*http.Request) bool {
	want := sha256.Sum256([]byte(token))
	return func(r *http.Request) bool {
		values := r.Header.Values(ClaimHeader)
		return len(values) == 1 && token != "" && sameSum(values[0], want)
	}
}

// Pool makes the token of the first claim the secret. The secret is kept in a file and required
// from then on, also after a restart (docs/protocols.md, Executor: "Authentication"; the warm
// pool's way). may decides which requests may claim; nil is ClaimLocally. A secret has at least
// MinSecret bytes. A request of a browser, recognised by its headers Origin and Sec-Fetch-Site, is
// never a claim, because any web page could send it.
//
// Invalid: the file exists but has no such secret. Internal: it cannot be read. A claim whose
// secret cannot be saved gets an Internal error, and the next claim can try again.
func Pool(path string, may func(*http.Request) bool) (func(*http.Request) error, error) {
	secret, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	p := &pool{path: path, may: may}
	if may == nil {
		p.may = ClaimLocally
	}
	if secret != "" {
		p.claimed, p.sum = true, sha256.Sum256([]byte(secret))
	}
	return p.authorize, nil
}

// pool is the state of Pool.
type pool struct {
	path string
	may  func(*http.Request) bool

	mu      sync.Mutex
	claimed bool
	sum     [sha256.Size]byte // of the secret
}

func (p *pool) authorize(r *http.Request) error {
	token, ok := bearer(r)
	if !ok {
		return errUnauthorized
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claimed {
		if !sameSum(token, p.sum) {
			return errUnauthorized
		}
		return nil
	}
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || !p.may(r) || !claimable(token) {
		return errUnauthorized
	}
	if err := saveSecret(p.path, token); err != nil {
		return &sandbar.Error{Code: sandbar.Internal, Message: "the secret could not be saved",
			Fix: "make the directory of the secret's file writable", Err: err}
	}
	p.claimed, p.sum = true, sha256.Sum256([]byte(token))
	return nil
}

// claimable reports whether a token survives being written to and read from a file.
func claimable(token string) bool {
	return len(token) >= MinSecret && len(token) <= maxSecret && token == strings.TrimSpace(token) && !strings.ContainsAny(token, "\r\n\x00")
}

// readSecret returns the saved secret, "" if there is no file.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+64))
	if err != nil {
		return "", unreadable(path, err)
	}
	secret := strings.TrimSpace(string(b))
	if !claimable(secret) {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "SANDBOX_SECRET_PATH",
			Message: "the secret's file " + sandbar.Quote(path, 200) + " is there but is empty or holds no secret of 16 to 4096 bytes",
			Fix:     "remove it, and the first claim's token becomes the secret"}
	}
	return secret, nil
}

func unreadable(path string, err error) error {
	return &sandbar.Error{Code: sandbar.Internal, Field: "SANDBOX_SECRET_PATH",
		Message: "the secret's file " + sandbar.Quote(path, 200) + " cannot be read", Err: err}
}

// saveSecret writes the secret's file atomically.
func saveSecret(path, secret string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var random [8]byte
	rand.Read(random[:])
	temp := filepath.Join(dir, ".secret-"+hex.EncodeToString(random[:]))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(secret + "\n")
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}
