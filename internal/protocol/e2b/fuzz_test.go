package e2b

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// FuzzEnvelope tests that every stream of envelopes is decoded, or refused with an error about the
// request, in bounded memory, and that what is decoded encodes to the same bytes.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x00\x00\x00\x00\x02{}", "\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x02{}", "\x01\x00\x00\x00\x00", "\x00\xff\xff\xff\xff{}", "\x00\x00\x00\x00\x05{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const most = 1000
		r := bytes.NewReader(in)
		var again []byte
		for {
			message, err := readEnvelope(r, most)
			if err == io.EOF {
				break
			}
			if err != nil {
				if code := sandbar.CodeOf(err); code != sandbar.Invalid && code != sandbar.TooLarge && code != sandbar.Unsupported {
					t.Fatal(err)
				}
				return
			}
			if len(message) > most {
				t.Fatalf("%d bytes", len(message))
			}
			again = appendEnvelope(again, 0, message)
			var q startRequest
			if err := decode(message, &q); err != nil && sandbar.CodeOf(err) != sandbar.Invalid {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(in, again) {
			t.Errorf("%q became %q", in, again)
		}
	})
}

// FuzzMetadata tests that every metadata of a query is decoded, or refused with an error about the
// request.
func FuzzMetadata(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a=b&c=d", "a=b&a=c", "%2561=%25C3%25BC", "%", "a;b", "=", "a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := decodeMetadata(text)
		if code := sandbar.CodeOf(err); err != nil && code != sandbar.Invalid && code != sandbar.TooLarge {
			t.Fatal(err)
		}
		size := 0
		for k, v := range m {
			size += len(k) + len(v)
		}
		if size > len(text) {
			t.Errorf("%q became %q", text, m)
		}
	})
}

// FuzzCreate tests that every body is decoded, or refused with an error about the request.
func FuzzCreate(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"templateID":"base","timeout":300,"metadata":{"a":"b"},"envVars":{},"autoPause":false,"network":{"denyOut":["0.0.0.0/0"]}}`,
		`{"network":{"allowPublicTraffic":false}}`, `{"autoResume":5}`, `{"network":[]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := decodeCreate(body)
		if code := sandbar.CodeOf(err); err != nil && code != sandbar.Invalid && code != sandbar.Unsupported {
			t.Fatal(err)
		}
	})
}

// FuzzASCII tests that a line of a cell has ASCII characters only, and the same value.
func FuzzASCII(f *testing.F) {
	for _, seed := range []string{"", "a", "ü", "💡\u2028", "\x80", "\ufffd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		line, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var a, b string
		escaped := ascii(line)
		if json.Unmarshal(line, &a) != nil || json.Unmarshal(escaped, &b) != nil || a != b {
			t.Errorf("%q became %q", line, escaped)
		}
		for _, c := range escaped {
			if c >= utf8.RuneSelf {
				t.Errorf("%q is not ASCII", escaped)
			}
		}
	})
}
