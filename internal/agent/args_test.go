package agent

import (
	"strconv"
	"strings"
	"testing"
)

func TestParseArgs(t *testing.T) {
	for line, want := range map[string]string{
		"sandbar-agent socket":                     "socket",
		"sandbar-agent stream":                     "stream",
		"sandbar-agent stage 1-2":                  "stage",
		"sandbar-agent stdio":                      "stdio",
		"sandbar-agent socket 17-4":                "socket",
		"/somewhere/sandbar-agent stdio 17-4":      "stdio",
		"/proc/self/fd/4 stream 17-4":              "stream",
		"sandbar-agent dial 7474":                  "dial 7474",
		"sandbar-agent dial 7474 17-4":             "dial 7474",
		"sandbar-agent spawner 17-4":               "spawner",
		"sandbar-agent spawner":                    "",
		"sandbar-agent":                            "",
		"sandbar-agent dial":                       "",
		"sandbar-agent socket a b":                 "",
		"sandbar-agent dial 7474 a b":              "",
		"sandbar-agent dial 0":                     "",
		"sandbar-agent dial 70000":                 "",
		"sandbar-agent dial /run/s":                "",
		"sandbar-agent serve":                      "",
		"sandbar socket":                           "",
		"/bin/sandbar-agents stdio":                "",
		"/sandbar-agent/x stdio":                   "",
		"/proc/self/exe stream":                    "",
		"/home/me/proc/self/fd/sandbar-agent/ foo": "",
	} {
		mode, port, ok := parseArgs(strings.Fields(line))
		got := mode
		if port != 0 {
			got += " " + strconv.Itoa(int(port))
		}
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, ok, want)
		}
	}
	if _, _, ok := parseArgs(nil); ok {
		t.Error("no arguments at all are taken for an agent's")
	}
}
