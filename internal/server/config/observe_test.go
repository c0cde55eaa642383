package config

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestCollector(t *testing.T) {
	for s, ok := range map[string]bool{"": true, "http://127.0.0.1:4318": true, "https://otlp.example/v1/traces?x=1": true,
		"127.0.0.1:4318": false, "grpc://x:4317": false, "http://": false, "http://user:secret@x": false, "http://x/#f": false} {
		if err := checkCollector(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestSyslogAddress(t *testing.T) {
	for s, want := range map[string]string{"unix:///dev/log": "unixgram /dev/log", "udp://h:5514": "udp h:5514", "udp://h": "udp h:514", "tcp://[::1]": "tcp [::1]:601",
		"unix://host/x": "", "unix:relative": "", "http://h": "", "udp://": "", "udp://h/x": "", "udp://u@h": "", "%": ""} {
		network, address, err := Audit{Syslog: s}.SyslogAddress()
		if got := strings.TrimSpace(network + " " + address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

// A file of headers is read; an error does not quote it.
func TestHeaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	read := func(content string) (http.Header, error) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return Traces{HeadersFile: path}.Headers()
	}
	h, err := read("Authorization: Basic c2VjcmV0\r\n\nx-key:  a: b \n")
	if want := (http.Header{"Authorization": {"Basic c2VjcmV0"}, "X-Key": {"a: b"}}); err != nil || !cmp.Equal(want, h) {
		t.Error(cmp.Diff(want, h), err)
	}
	for content, want := range map[string]sandbar.Code{"secret": sandbar.Invalid, "a b: secret": sandbar.Invalid, ": secret": sandbar.Invalid,
		"a: secret\x01": sandbar.Invalid, "a: " + strings.Repeat("x", maxHeadersFile): sandbar.TooLarge} {
		if _, err := read(content); sandbar.CodeOf(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if _, err := (Traces{HeadersFile: path + "x"}).Headers(); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Error(err)
	}
}
