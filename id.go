package sandbar

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// ID names a sandbox. It is "sb_" and 26 characters of lower-case base32: 128
// random bits, so that an ID can be neither guessed nor turned into a path.
type ID string

const idPrefix = "sb_"

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns a fresh ID with 128 bits from the system's random source.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
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
