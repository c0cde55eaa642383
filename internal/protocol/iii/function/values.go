package function

import (
	"encoding/base64"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// parseID parses a sandbox's id: a UUID, as in this protocol, or "sb_…", as on the command line.
func parseID(s string) (sandbar.ID, error) {
	id, err := sandbar.ReadID(s)
	if err != nil {
		return "", fail(S001, "sandbox_id is not a valid UUID: %s", clip(s))
	}
	return id, nil
}

// parseMode parses octal permissions: "0644". "" and zeros are 0.
func parseMode(s string) (uint32, error) {
	digits := strings.TrimLeft(s, "0")
	if digits == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(digits, 8, 32)
	if err != nil {
		return 0, fail(S210, "invalid octal mode: %s", clip(s))
	}
	return uint32(n) & 0o7777, nil
}

// repairMode guesses the intended mode of a malformed one: an octal number in a programming
// language's notation. ok is false if it cannot.
func repairMode(s string) (mode string, ok bool) {
	digits := strings.TrimPrefix(strings.ToLower(s), "0o")
	if n, err := strconv.ParseUint(digits, 8, 12); err == nil && digits != s {
		return "0" + strconv.FormatUint(n, 8), true
	}
	return "", false
}

// fileMode converts permission bits to io/fs. The result is never 0, which would mean "default" to
// sandbar.FS: a type bit, which has no effect there, is set instead.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits&0o777) | fs.ModeIrregular
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= flag
		}
	}
	return m
}

// unset returns the mode of a copy, without set-user-ID and set-group-ID.
func unset(m fs.FileMode) fs.FileMode { return m &^ (fs.ModeSetuid | fs.ModeSetgid) }

// showMode formats a mode as four octal digits.
func showMode(m fs.FileMode) string {
	bits := uint32(m.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	s := strconv.FormatUint(uint64(bits), 8)
	return "0000"[:max(0, 4-len(s))] + s
}

// parseBase64 parses standard base64 with padding.
func parseBase64(field, s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") { // the library would ignore them
		return nil, fail(S001, "%s is not valid base64", field)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fail(S001, "%s is not valid base64: %s", field, err)
	}
	return b, nil
}

// lossy converts bytes to text: invalid UTF-8 becomes U+FFFD, one for each maximal subpart.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + 16)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < len(b) && !utf8.FullRune(b[:size]) && !utf8.FullRune(b[:size+1]) {
				size++
			}
		}
		s.WriteRune(r)
		b = b[size:]
	}
	return s.String()
}

// baseName returns the last name of a path, or the path if it has none.
func baseName(path string) string {
	p := path
	for {
		t := strings.TrimRight(p, "/")
		if t = strings.TrimSuffix(t, "/."); t == p {
			break
		}
		p = t
	}
	name := p[strings.LastIndexByte(p, '/')+1:]
	if name == "" || name == ".." || name == "." {
		return path
	}
	return name
}
