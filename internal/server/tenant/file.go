// Package tenant keeps the tokens of tenants: a file in the daemon's state directory, which the
// subcommands of "sandbar token" change and the daemon reads again when it has changed. The file
// has the hashes of tokens, not the tokens.
package tenant

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
)

const (
	// FileName is the name of the file in the state directory.
	FileName = "tokens.json"
	// MaxTokens is the most tokens of a file.
	MaxTokens = 1000
	// maxFile bounds the file, in bytes.
	maxFile = 1 << 20
	// lockTimeout bounds the wait for another process that changes the file.
	lockTimeout = 10 * time.Second
	format      = 1
)

// Token is a token of a tenant, without the token itself.
type Token struct {
	// Name identifies the token among all tokens. Events and the audit log have it.
	Name string `json:"name"`
	// Tenant is the name of the tenant.
	Tenant string       `json:"tenant"`
	Role   sandbar.Role `json:"role"`
	// Hash is the SHA-256 hash of the token, in hexadecimal digits.
	Hash    string    `json:"sha256"`
	Created time.Time `json:"created"`
	// Expires is the end of the token; nil for none.
	Expires *time.Time `json:"expires,omitempty"`
}

// Expired reports whether the token has ended at a time.
func (t Token) Expired(now time.Time) bool { return t.Expires != nil && !now.Before(*t.Expires) }

// Client is the identity of the token's bearer.
func (t Token) Client() sandbar.Client {
	c := sandbar.Client{Name: t.Name, Tenant: t.Tenant, Role: t.Role}
	if c.Tenant == sandbar.DefaultTenant {
		c.Tenant = ""
	}
	return c
}

// HashOf returns the hash of a token as the file has it.
func HashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// contents is the content of the file.
type contents struct {
	Format int     `json:"format"`
	Tokens []Token `json:"tokens"`
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// CheckName returns Invalid if a name of a token or tenant, which field says, is malformed.
func CheckName(field, name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: field + " " + sandbar.Quote(name, 80) + " is not valid",
		Fix: "use 1 to 63 lower-case letters, digits, '_' and '-'; the first is a letter or a digit"}
}

// CheckRole returns Invalid if a token cannot have a role.
func CheckRole(r sandbar.Role) error {
	if slices.Contains(sandbar.Roles, r) {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Invalid, Field: "role", Message: "role " + sandbar.Quote(string(r), 40) + " is not known", Fix: "allowed: admin, user, read-only"}
}

// check returns why the content of the file cannot be used.
func (c contents) check() error {
	if c.Format != format {
		return errors.New("its format is " + strconv.Itoa(c.Format) + ", and this version reads format " + strconv.Itoa(format))
	}
	if len(c.Tokens) > MaxTokens {
		return errors.New("it has more than " + strconv.Itoa(MaxTokens) + " tokens")
	}
	names, hashes := map[string]bool{}, map[string]bool{}
	for _, t := range c.Tokens {
		if err := errors.Join(CheckName("name", t.Name), CheckName("tenant", t.Tenant), CheckRole(t.Role)); err != nil {
			return err
		}
		if sum, err := hex.DecodeString(t.Hash); err != nil || len(sum) != sha256.Size {
			return errors.New("the hash of the token " + t.Name + " is not one of SHA-256")
		}
		if names[t.Name] || hashes[t.Hash] {
			return errors.New("it has the token " + t.Name + " twice")
		}
		names[t.Name], hashes[t.Hash] = true, true
	}
	return nil
}

// damaged is the error for a file that cannot be used.
func damaged(path string, err error) error {
	return &sandbar.Error{Code: sandbar.Unavailable, Message: "the file of tenants' tokens " + sandbar.Quote(path, 200) + " cannot be used, so none of its tokens is accepted", Err: err,
		Fix: "repair it or restore a copy; or remove it, and create the tokens again with \"sandbar token create\""}
}

// Read returns the tokens of a file; none if there is no file. Unavailable: the file cannot be
// used: it is damaged, too large, or open to other users.
func Read(path string) ([]Token, error) {
	tokens, _, err := read(path)
	return tokens, err
}

// read is Read, and returns a description of the file that was read; nil for none.
func read(path string) ([]Token, fs.FileInfo, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, damaged(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, damaged(path, err)
	}
	c, err := decode(f, info)
	if err != nil {
		return nil, info, damaged(path, err)
	}
	return c.Tokens, info, nil
}

func decode(f io.Reader, info fs.FileInfo) (c contents, err error) {
	switch {
	case !info.Mode().IsRegular():
		return c, errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return c, errors.New("it is open to other users; its mode must be 0600")
	case info.Size() > maxFile:
		return c, errors.New("it has more than " + strconv.Itoa(maxFile) + " bytes")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return c, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, err
	}
	if _, err := d.Token(); err != io.EOF {
		return c, errors.New("something follows its JSON object")
	}
	return c, c.check()
}

// Create adds a token. Exists: a token has its name, or is the same. Exhausted: the file has
// MaxTokens. Unavailable: the file cannot be read or written; it is unchanged then.
func Create(path string, t Token) error {
	if err := errors.Join(CheckName("name", t.Name), CheckName("tenant", t.Tenant), CheckRole(t.Role)); err != nil {
		return err
	}
	return change(path, func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name || o.Hash == t.Hash }) {
			return nil, &sandbar.Error{Code: sandbar.Exists, Field: "name", Message: "there is a token " + sandbar.Quote(t.Name, 80) + " already",
				Fix: "choose another name, or revoke that token first"}
		}
		if len(all) >= MaxTokens {
			return nil, sandbar.Errorf(sandbar.Exhausted, "there are %d tokens, which is the limit", MaxTokens)
		}
		return append(all, t), nil
	})
}

// Revoke removes the token with a name. NotFound: there is none. Unavailable: see Create.
func Revoke(path, name string) error {
	return change(path, func(all []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(all), func(o Token) bool { return o.Name == name })
		if len(left) == len(all) {
			return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "name", Message: "there is no token " + sandbar.Quote(name, 80),
				Fix: "see \"sandbar token list\""}
		}
		return left, nil
	})
}

// change replaces the tokens of a file. The new file appears complete, by a rename.
func change(path string, to func([]Token) ([]Token, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	unlock, err := cachedir.Lock(ctx, filepath.Dir(path))
	if err != nil {
		return &sandbar.Error{Code: sandbar.Unavailable, Message: "the directory of the file of tenants' tokens cannot be locked", Err: err, Fix: "try again when no other command changes tokens"}
	}
	defer unlock()
	all, info, err := read(path)
	if err != nil {
		return err
	}
	if all, err = to(all); err != nil {
		return err
	}
	if err := replace(path, info, all); err != nil {
		return &sandbar.Error{Code: sandbar.Unavailable, Message: "the file of tenants' tokens " + sandbar.Quote(path, 200) + " cannot be written", Err: err,
			Fix: "check the space on its disk and the rights on its directory"}
	}
	return nil
}

// replace writes a new file in place of the old one, which info describes; nil for none.
func replace(path string, old fs.FileInfo, all []Token) error {
	if all == nil {
		all = []Token{}
	}
	b, err := json.MarshalIndent(contents{Format: format, Tokens: all}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), FileName+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it does not exist after the rename
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// The daemon sees a change by the time of the file: two changes must not have the same one.
	at := time.Now()
	if old != nil && at.Before(old.ModTime().Add(time.Microsecond)) {
		at = old.ModTime().Add(time.Microsecond)
	}
	if err := os.Chtimes(f.Name(), at, at); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
