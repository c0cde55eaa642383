package config

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Token is the daemon's bearer token and its origin.
type Token struct {
	Value string
	// File is the token's file, "" if the setting token has it.
	File string
	// Explicit says that the operator chose the token, by token or token_file.
	Explicit bool
	// Fresh says that the token was just created, so no client knows it yet.
	Fresh bool
}

// ResolveToken returns the setting token, or the content of token_file, or that of the file "token"
// in StateDir. If that file does not exist it creates it: 64 random hexadecimal digits, mode 0600.
func (c *Config) ResolveToken() (Token, error) {
	if c.Token != "" {
		return Token{Value: c.Token, Explicit: true}, nil
	}
	if c.TokenFile != "" {
		value, err := readToken(c.TokenFile, "token_file")
		return Token{Value: value, File: c.TokenFile, Explicit: true}, err
	}
	if c.StateDir == "" {
		return Token{}, &sandbar.Error{Code: sandbar.Invalid, Field: "state_dir", Message: "there is no home directory to keep a token in",
			Fix: "set HOME or state_dir, or give a token"}
	}
	if err := PrivateDir(c.StateDir, "state_dir"); err != nil {
		return Token{}, err
	}
	path := filepath.Join(c.StateDir, "token")
	fresh, err := makeToken(path)
	if err != nil {
		return Token{}, &sandbar.Error{Code: sandbar.Unavailable, Field: "state_dir", Message: "cannot keep a token in " + printable(path) + ": " + reason(err),
			Fix: "set state_dir to a directory that can be written, or give a token", Err: silent(err)}
	}
	if info, err := os.Lstat(path); err == nil {
		if why, fix := foreign(info); why != "" {
			return Token{}, &sandbar.Error{Code: sandbar.Denied, Field: "state_dir", Message: "the token file " + printable(path) + " " + why, Fix: fix}
		}
	}
	value, err := readToken(path, "state_dir")
	return Token{Value: value, File: path, Fresh: fresh}, err
}

// FindToken is ResolveToken for a client: it creates no token. The error is Unauthenticated and
// lists the places of tokens.
func (c *Config) FindToken() (string, error) {
	if c.Token != "" {
		return c.Token, nil
	}
	path, setting := c.TokenFile, "token_file"
	if path == "" && c.StateDir != "" {
		path, setting = filepath.Join(c.StateDir, "token"), "state_dir"
	}
	_, err := os.Stat(path)
	if path == "" || setting == "state_dir" && errors.Is(err, fs.ErrNotExist) {
		looked := "there is no home directory to look for one in"
		if path != "" {
			looked = "there is none at " + printable(path) + ", where a daemon of this user keeps it"
		}
		return "", &sandbar.Error{Code: sandbar.Unauthenticated, Field: "token", Message: "no token was found: " + looked,
			Fix: "set SANDBAR_TOKEN or --token-file to the daemon's token"}
	}
	return readToken(path, setting)
}

// NewToken returns a token of 256 random bits.
func NewToken() string { return randomHex(32) }

// NewE2BToken returns a token of 160 random bits that has the form of E2B's API keys.
func NewE2BToken() string { return "e2b_" + randomHex(20) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails: crypto/rand crashes the process instead
	return hex.EncodeToString(b)
}

// makeToken creates a token file unless it exists. The file appears with its complete content
// (link(2)), so of two daemons that start at once both read the same token.
func makeToken(path string) (made bool, err error) {
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "token-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	_, err = io.WriteString(f, NewToken()+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// readToken reads the single line of a token file.
func readToken(path, setting string) (string, error) {
	refuse := func(why string, err error) (string, error) {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: setting, Message: setting + ": the token file " + printable(path) + " " + why,
			Fix: "it must hold one line of 1 to 4096 visible ASCII characters", Err: err}
	}
	data, err := readFile(path)
	if err != nil {
		return refuse("cannot be read: "+reason(err), silent(err))
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if err := checkToken(line); err != nil {
		return refuse("holds no token: its content "+err.Error(), nil)
	}
	return line, nil
}
