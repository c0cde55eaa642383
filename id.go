package sandbar

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// ID identifies a sandbox. It is "sb_" and 26 characters of lower-case base32 for 128 bits. It
// cannot be guessed, and it has no characters that are special in paths. UUID and ParseUUID convert
// it to and from a UUID of the same bits, for protocols whose clients expect one.
type ID string

const idPrefix = "sb_"

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns a new ID with 122 bits from the system's random source. The other 6 bits make its
// UUID a random one (RFC 9562, version 4), because some clients refuse any other.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(idPrefix + idEncoding.EncodeToString(b[:]))
}

// ParseID checks that s has the form of an ID. Anything else is an Invalid error that quotes at
// most 40 bytes of s.
func ParseID(s string) (ID, error) {
	if len(s) == len(idPrefix)+26 && strings.HasPrefix(s, idPrefix) {
		if _, err := idEncoding.DecodeString(s[len(idPrefix):]); err == nil {
			return ID(s), nil
		}
	}
	return "", &Error{
		Code:    Invalid,
		Field:   "id",
		Message: "sandbox id " + Quote(s, 40) + " is malformed: an id is \"sb_\" and 26 characters of a-z and 2-7",
	}
}

// UUID returns the ID as a UUID of 36 characters in lower case. It returns "" if id is malformed.
func (id ID) UUID() string {
	if _, err := ParseID(string(id)); err != nil {
		return ""
	}
	b, _ := idEncoding.DecodeString(string(id[len(idPrefix):])) // ParseID has decoded it
	d := hex.EncodeToString(b)
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// ParseUUID returns the ID of a UUID in upper or lower case and in one of four forms: 36
// characters; these in braces; these after "urn:uuid:"; 32 hexadecimal digits. Anything else is an
// Invalid error that quotes at most 40 bytes of s.
func ParseUUID(s string) (ID, error) {
	digits := s
	switch len(s) {
	case 45:
		digits = strings.TrimPrefix(strings.ToLower(s), "urn:uuid:")
	case 38:
		digits = strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	}
	if len(digits) == 36 && digits[8] == '-' && digits[13] == '-' && digits[18] == '-' && digits[23] == '-' {
		digits = strings.ReplaceAll(digits, "-", "")
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 16 {
		return "", &Error{Code: Invalid, Field: "id", Message: "sandbox id " + Quote(s, 40) + " is malformed: it is not a UUID"}
	}
	return ID(idPrefix + idEncoding.EncodeToString(b)), nil
}

// ReadID parses s as a UUID or as an ID. Errors are those of ParseID.
func ReadID(s string) (ID, error) {
	if id, err := ParseUUID(s); err == nil {
		return id, nil
	}
	return ParseID(s)
}
