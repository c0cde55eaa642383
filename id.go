package sandbar

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// ID names a sandbox. It is "sb_" and 26 characters of lower-case base32 for 128
// bits, so that an ID can be neither guessed nor turned into a path. The same bits
// have a second spelling, a UUID, for protocols whose clients want one: see UUID
// and ParseUUID.
type ID string

const idPrefix = "sb_"

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns a fresh ID with 122 bits from the system's random source. The other
// 6 say that its UUID is a random one (RFC 9562, version 4): some clients refuse
// any other.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(idPrefix + idEncoding.EncodeToString(b[:]))
}

// ParseID checks that s has the form of an ID. Anything else, whatever its
// length or characters, is an Invalid error that does not repeat s in full.
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

// UUID returns the ID in its second spelling: 36 characters, lower case. It is ""
// for what is no ID.
func (id ID) UUID() string {
	if _, err := ParseID(string(id)); err != nil {
		return ""
	}
	b, _ := idEncoding.DecodeString(string(id[len(idPrefix):])) // ParseID has decoded it
	d := hex.EncodeToString(b)
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// ParseUUID returns the ID of a UUID in any of its forms, in either case: 36
// characters, those in braces or after "urn:uuid:", or 32 digits. Anything else is
// an Invalid error that does not repeat s in full.
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

// ReadID returns the ID that s spells, as ParseID or ParseUUID reads it.
func ReadID(s string) (ID, error) {
	if id, err := ParseUUID(s); err == nil {
		return id, nil
	}
	return ParseID(s)
}
