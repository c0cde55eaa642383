package config

import (
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// maxHeadersFile bounds Traces.HeadersFile, in bytes.
const maxHeadersFile = 16 << 10

// Headers reads the headers for the collector. Invalid: a line is no header. Unavailable: the
// file cannot be read.
func (t Traces) Headers() (http.Header, error) {
	if t.HeadersFile == "" {
		return nil, nil
	}
	fail := func(code sandbar.Code, what, fix string) error {
		return &sandbar.Error{Code: code, Field: "traces.headers_file", Message: "the file " + printable(t.HeadersFile) + " " + what, Fix: fix}
	}
	f, err := os.Open(t.HeadersFile)
	if err != nil {
		return nil, fail(sandbar.Unavailable, "cannot be read: "+reason(err), "name a file that the daemon's user can read")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxHeadersFile+1))
	if err != nil {
		return nil, fail(sandbar.Unavailable, "cannot be read: "+reason(err), "name a file that the daemon's user can read")
	}
	if len(content) > maxHeadersFile {
		return nil, fail(sandbar.TooLarge, "has more than 16 KiB", "keep the headers only")
	}
	h := http.Header{}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); !ok || !headerName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fail(sandbar.Invalid, "has a line that is no header", `write each header as "Name: value" on a line of its own`)
		}
		h.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	return h, nil
}

// headerName reports whether s is the name of a header: RFC 9110, token.
func headerName(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") == ""
}
