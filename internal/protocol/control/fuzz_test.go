package control

import (
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// FuzzBody tests that every body is decoded, or refused with an error about the request, and that
// decoded names and secrets are valid.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", `{"image": "host", "name": "a", "env": {"A": "b"}, "labels": {"k": "v"}, "secret": "0123456789abcdef0123456789abcdef"}`,
		`{"idle_timeout": 300, "allow_degraded": true, "cold": false, "network": "outbound", "driver": "native"}`,
		`{"limits": {"memory": 536870912, "cpus": 0.5, "pids": "unlimited", "timeout": 1e300, "output": -1}}`,
		`{"args": ["sh", "-c", "true"], "env": {}, "dir": "/tmp", "timeout": 60, "output": 1048576, "stdin": true}`,
		`{"code": "1+1", "env": {"A": "b"}, "timeout": 0.5, "output": 100}`, `{"language": "python", "dir": "/tmp"}`,
		`{"image": "a", "image": "b"}`, `{"name": "\ud800"}`, `{"limits": {"limits": {}}} x`, `{"env": {"A": 1}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeCreate(body)
		mine(t, err)
		if err == nil && (checkName(c.Name) != nil || checkSecret(c.Secret) != nil) {
			t.Errorf("%q was read with the name %q and the secret %q", body, c.Name, c.Secret)
		}
		_, err = decodeExec(body)
		mine(t, err)
		_, err = decodeContext(body)
		mine(t, err)
		_, err = decodeCell(body)
		mine(t, err)
	})
}

// mine fails for an error that is not about the request.
func mine(t *testing.T, err error) {
	t.Helper()
	if err != nil && sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v: code %v", err, sandbar.CodeOf(err))
	}
}
