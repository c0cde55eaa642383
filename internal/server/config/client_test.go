package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func TestDaemonURL(t *testing.T) {
	for _, tc := range []struct {
		environ []string
		want    string // or a part of the error
	}{
		{nil, "http://127.0.0.1:8080"},
		{[]string{"SANDBAR_LISTEN=0.0.0.0:81"}, "http://127.0.0.1:81"},
		{[]string{"SANDBAR_LISTEN=:81"}, "http://127.0.0.1:81"},
		{[]string{"SANDBAR_LISTEN=[::]:81"}, "http://[::1]:81"},
		{[]string{"SANDBAR_LISTEN=box.example:81"}, "http://box.example:81"},
		{[]string{"SANDBAR_LISTEN=unix:/run/s"}, "unix:/run/s"},
		{[]string{"SANDBAR_TLS_CERT=c", "SANDBAR_TLS_KEY=k"}, "https://127.0.0.1:8080"},
		{[]string{"SANDBAR_LISTEN=127.0.0.1:0"}, "set url, SANDBAR_URL or --url"},
		{[]string{"SANDBAR_LISTEN=127.0.0.1:0", "SANDBAR_URL=https://box.example/"}, "https://box.example"},
		{[]string{"SANDBAR_URL=unix:/run/s"}, "unix:/run/s"},
		{[]string{"SANDBAR_URL=unix:s"}, "is not an absolute path of a socket"},
		{[]string{"SANDBAR_URL=box.example:81"}, "is not the address of a daemon"},
		{[]string{"SANDBAR_URL=http://"}, "is not the address of a daemon"},
		{[]string{"SANDBAR_URL=http://me@box.example"}, "has more than a scheme, a host and a port"},
		{[]string{"SANDBAR_URL=http://box.example/path"}, "has more than a scheme, a host and a port"},
	} {
		c, err := load(t, "", tc.environ)
		got := ""
		if err == nil {
			got, err = c.DaemonURL()
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%v: %s, want %s", tc.environ, got, tc.want)
		}
	}
}

func TestFindToken(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	c := &Config{StateDir: state}
	if _, err := c.FindToken(); sandbar.CodeOf(err) != sandbar.Unauthenticated || !strings.Contains(err.Error(), "set SANDBAR_TOKEN") {
		t.Errorf("without a daemon: %v", err)
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("to look for a token made a directory")
	}
	made, err := c.ResolveToken()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := c.FindToken(); err != nil || found != made.Value {
		t.Errorf("the daemon's own: %v", err)
	}
	c.TokenFile = filepath.Join(dir, "file")
	if _, err := c.FindToken(); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(c.TokenFile, []byte("of-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := c.FindToken(); err != nil || found != "of-file" {
		t.Errorf("of a file: %q, %v", found, err)
	}
	c.Token = "given"
	if found, err := c.FindToken(); err != nil || found != "given" {
		t.Errorf("given: %q, %v", found, err)
	}
	if _, err := new(Config).FindToken(); sandbar.CodeOf(err) != sandbar.Unauthenticated {
		t.Errorf("without a home: %v", err)
	}
}

// The settings in force are those of the start, and of live settings the loaded ones; no secret is
// among them.
func TestSettings(t *testing.T) {
	started, err := load(t, "token: top-secret-token\nmax_queue: 5\ndrivers: {native: {colour: red}}\nlog: {level: warn}\n", []string{"SANDBAR_E2B=true"})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := load(t, "token: other-secret\nmax_queue: 9\nlog: {level: debug}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Setting{}
	for _, s := range Settings(started, loaded) {
		all[s.Name] = s
		if strings.Contains(s.Value+s.Origin, "secret") {
			t.Errorf("%+v", s)
		}
	}
	if len(all) != len(started.fields()) {
		t.Errorf("%d settings of %d", len(all), len(started.fields()))
	}
	if s := all["token"]; !s.Secret || !s.Live || s.Value != "" || s.Origin == "" {
		t.Errorf("%+v", s)
	}
	if s := all["max_queue"]; s.Value != "5" || s.Live || !strings.Contains(s.Origin, "c.yaml") || s.Variable != "SANDBAR_MAX_QUEUE" || s.Default != "1024" || s.Allowed == "" || s.Doc == "" {
		t.Errorf("%+v", s)
	}
	if s := all["log.level"]; s.Value != "debug" || !s.Live {
		t.Errorf("%+v", s)
	}
	if s := all["e2b"]; s.Value != "true" || !strings.Contains(s.Origin, "SANDBAR_E2B") {
		t.Errorf("%+v", s)
	}
	if s := all["grace"]; s.Value == "" || s.Origin != "" {
		t.Errorf("%+v", s)
	}
	if s := all["drivers"]; !strings.Contains(s.Value, "colour") || !strings.Contains(s.Value, "red") {
		t.Errorf("%+v", s)
	}
}
