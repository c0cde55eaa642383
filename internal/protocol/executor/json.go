package executor

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// bufferSize is the size in bytes of the buffer for a body, and of the pieces of a file on its way
// through JSON.
const bufferSize = 64 << 10

// maxDepth is the deepest nesting of ignored parts of a request.
const maxDepth = 64

// maxMembers is the most members of all objects of one request.
const maxMembers = 1 << 16

var (
	// errSyntax: the body is not the expected JSON.
	errSyntax = errors.New("the body is not valid JSON of the expected form")
	// errTooLarge: the body needs more memory than allowed.
	errTooLarge = errors.New("the body is larger than is accepted")
	// errContent: the content of a file is larger than allowed.
	errContent = errors.New("the content is larger than is accepted")
)

// jsonReader decodes one JSON value from a body as it arrives. It holds only its buffer and its
// results. It is strict: no byte order mark, no bytes that are not UTF-8, no escapes of unpaired
// surrogates (UTF-8 cannot represent them), nothing after the value.
type jsonReader struct {
	src  io.Reader
	buf  []byte
	pos  int // buf[pos:end] is unread
	end  int
	err  error // of src
	most int64 // bound of the bytes read, except those of streamed strings
	used int64 // bytes consumed before buf[0]
	free int64 // of those, bytes of streamed strings

	members int
}

// newJSONReader returns a reader of src that uses buf, which must have at least 16 bytes.
func newJSONReader(src io.Reader, buf []byte, most int64) *jsonReader {
	return &jsonReader{src: src, buf: buf, most: most}
}

// need makes n bytes available, if the body has that many. n is at most 16.
func (j *jsonReader) need(n int) error {
	for j.end-j.pos < n {
		if err := j.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads more. At the end of the body it returns io.EOF.
func (j *jsonReader) fill() error {
	j.used += int64(j.pos)
	j.end = copy(j.buf, j.buf[j.pos:j.end])
	j.pos = 0
	if j.used+int64(j.end)-j.free > j.most {
		return errTooLarge
	}
	if j.err != nil {
		return j.err
	}
	n, err := j.src.Read(j.buf[j.end:])
	j.end += n
	j.err = err
	if n == 0 && err != nil {
		return err
	}
	return nil
}

// must is need for bytes that must exist.
func (j *jsonReader) must(n int) error {
	err := j.need(n)
	if err == io.EOF {
		return errSyntax
	}
	return err
}

// space skips white space and returns the next byte without consuming it.
func (j *jsonReader) space() (byte, error) {
	for {
		if err := j.must(1); err != nil {
			return 0, err
		}
		switch c := j.buf[j.pos]; c {
		case ' ', '\t', '\n', '\r':
			j.pos++
		default:
			return c, nil
		}
	}
}

// token skips white space and then c, and reports whether c was there.
func (j *jsonReader) token(c byte) (bool, error) {
	got, err := j.space()
	if err != nil || got != c {
		return false, err
	}
	j.pos++
	return true, nil
}

// finish checks that only white space is left.
func (j *jsonReader) finish() error {
	for {
		for ; j.pos < j.end; j.pos++ {
			if bytes.IndexByte([]byte(" \t\n\r"), j.buf[j.pos]) < 0 {
				return errSyntax
			}
		}
		if err := j.fill(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// object decodes an object. It calls member for each member, before the member's value.
func (j *jsonReader) object(member func(name string) error) error {
	if ok, err := j.token('{'); err != nil || !ok {
		return or(err, errSyntax)
	}
	if ok, err := j.token('}'); err != nil || ok {
		return err
	}
	for {
		if j.members++; j.members > maxMembers {
			return errSyntax
		}
		name, err := j.text()
		if err != nil {
			return err
		}
		if ok, err := j.token(':'); err != nil || !ok {
			return or(err, errSyntax)
		}
		if err := member(name); err != nil {
			return err
		}
		if ok, err := j.token(','); err != nil {
			return err
		} else if ok {
			continue
		}
		ok, err := j.token('}')
		if err != nil || !ok {
			return or(err, errSyntax)
		}
		return nil
	}
}

// or returns the first error.
func or(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// isNull consumes a null, if it is next.
func (j *jsonReader) isNull() (bool, error) {
	c, err := j.space()
	if err != nil || c != 'n' {
		return false, err
	}
	return true, j.word("null")
}

func (j *jsonReader) word(w string) error {
	if err := j.must(len(w)); err != nil {
		return err
	}
	if string(j.buf[j.pos:j.pos+len(w)]) != w {
		return errSyntax
	}
	j.pos += len(w)
	return nil
}

// text decodes a string.
func (j *jsonReader) text() (string, error) {
	var s []byte
	err := j.stringTo(func(p []byte) error {
		s = append(s, p...)
		return nil
	})
	return string(s), err
}

// stream decodes a string of any length and passes it to w in pieces, which are valid until w
// returns.
func (j *jsonReader) stream(w func([]byte) error) error {
	if _, err := j.space(); err != nil {
		return err
	}
	start := j.used + int64(j.pos)
	err := j.stringTo(func(p []byte) error {
		// passed on, so it does not count as memory
		j.free += j.used + int64(j.pos) - start
		start = j.used + int64(j.pos)
		return w(p)
	})
	return err
}

// stringTo decodes a string and passes it to w in pieces.
func (j *jsonReader) stringTo(w func([]byte) error) error {
	if ok, err := j.token('"'); err != nil || !ok {
		return or(err, errSyntax)
	}
	for {
		if err := j.must(1); err != nil {
			return err
		}
		if n := strictjson.PlainPrefix(j.buf[j.pos:j.end]); n > 0 {
			j.pos += n
			if err := w(j.buf[j.pos-n : j.pos]); err != nil {
				return err
			}
			continue
		}
		c := j.buf[j.pos]
		switch {
		case c == '"':
			j.pos++
			return nil
		case c == '\\':
			var b [utf8.UTFMax]byte
			n, err := j.escape(b[:])
			if err == nil {
				err = w(b[:n])
			}
			if err != nil {
				return err
			}
		case c < ' ':
			return errSyntax
		default:
			if err := j.runes(w); err != nil {
				return err
			}
		}
	}
}

// runes passes the following non-ASCII characters to w.
func (j *jsonReader) runes(w func([]byte) error) error {
	for !utf8.FullRune(j.buf[j.pos:j.end]) {
		if err := j.must(j.end - j.pos + 1); err != nil {
			return err
		}
	}
	n := 0
	for p := j.buf[j.pos:j.end]; n < len(p) && p[n] >= utf8.RuneSelf && utf8.FullRune(p[n:]); {
		r, size := utf8.DecodeRune(p[n:])
		if r == utf8.RuneError && size == 1 {
			return errSyntax
		}
		n += size
	}
	j.pos += n
	return w(j.buf[j.pos-n : j.pos])
}

// escape decodes one escape, or a surrogate pair, into b.
func (j *jsonReader) escape(b []byte) (int, error) {
	if err := j.must(2); err != nil {
		return 0, err
	}
	c := j.buf[j.pos+1]
	if c == 'u' {
		return j.unicodeEscape(b)
	}
	i := bytes.IndexByte([]byte(`"\/bfnrt`), c)
	if i < 0 {
		return 0, errSyntax
	}
	j.pos += 2
	b[0] = "\"\\/\b\f\n\r\t"[i]
	return 1, nil
}

func (j *jsonReader) unicodeEscape(b []byte) (int, error) {
	r, err := j.hex()
	if err != nil {
		return 0, err
	}
	if 0xD800 <= r && r < 0xE000 {
		low, err := j.hex()
		if err != nil {
			return 0, err
		}
		if r >= 0xDC00 || low < 0xDC00 || low >= 0xE000 {
			return 0, errSyntax // an unpaired surrogate
		}
		r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
	}
	return utf8.EncodeRune(b, r), nil
}

// hex reads an escape: \u and four hexadecimal digits.
func (j *jsonReader) hex() (rune, error) {
	if err := j.must(6); err != nil {
		return 0, err
	}
	p := j.buf[j.pos : j.pos+6]
	if p[0] != '\\' || p[1] != 'u' {
		return 0, errSyntax
	}
	var r rune
	for _, c := range p[2:] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errSyntax
		}
		r = r<<4 | rune(c)
	}
	j.pos += 6
	return r, nil
}

// number decodes a number.
func (j *jsonReader) number() (float64, error) {
	if _, err := j.space(); err != nil {
		return 0, err
	}
	var digits []byte
	for {
		if err := j.must(1); err != nil {
			return 0, err
		}
		c := j.buf[j.pos]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		if digits = append(digits, c); len(digits) > 64 {
			return 0, errSyntax
		}
		j.pos++
	}
	if !validNumber(digits) {
		return 0, errSyntax
	}
	// Too large for a float64 is infinity, which the caller refuses.
	f, err := strconv.ParseFloat(string(digits), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errSyntax
	}
	return f, nil
}

// validNumber reports whether p is a JSON number (RFC 8259, section 6).
func validNumber(p []byte) bool {
	if len(p) > 0 && p[0] == '-' {
		p = p[1:]
	}
	whole, rest := digitsOf(p)
	if len(whole) == 0 || (whole[0] == '0' && len(whole) > 1) {
		return false
	}
	if len(rest) > 0 && rest[0] == '.' {
		var decimals []byte
		if decimals, rest = digitsOf(rest[1:]); len(decimals) == 0 {
			return false
		}
	}
	if len(rest) > 0 && (rest[0] == 'e' || rest[0] == 'E') {
		rest = rest[1:]
		if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		var power []byte
		if power, rest = digitsOf(rest); len(power) == 0 {
			return false
		}
	}
	return len(rest) == 0
}

func digitsOf(p []byte) (digits, rest []byte) {
	n := 0
	for n < len(p) && '0' <= p[n] && p[n] <= '9' {
		n++
	}
	return p[:n], p[n:]
}

// skip skips an ignored value at nesting depth.
func (j *jsonReader) skip(depth int) error {
	c, err := j.space()
	if err != nil {
		return err
	}
	switch c {
	case '"':
		return j.stringTo(func([]byte) error { return nil })
	case 't':
		return j.word("true")
	case 'f':
		return j.word("false")
	case 'n':
		return j.word("null")
	case '{', '[':
		if depth >= maxDepth {
			return errSyntax
		}
		if c == '[' {
			return j.array(depth)
		}
		return j.object(func(string) error { return j.skip(depth + 1) })
	}
	_, err = j.number()
	return err
}

func (j *jsonReader) array(depth int) error {
	j.pos++
	if ok, err := j.token(']'); err != nil || ok {
		return err
	}
	for {
		if err := j.skip(depth + 1); err != nil {
			return err
		}
		if ok, err := j.token(','); err != nil {
			return err
		} else if ok {
			continue
		}
		ok, err := j.token(']')
		if err != nil || !ok {
			return or(err, errSyntax)
		}
		return nil
	}
}
