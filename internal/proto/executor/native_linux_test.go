package executor

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/testenv"
)

// newNative is newRig over real sandboxes, for what only real programs do.
func newNative(t testing.TB, o Options) *rig {
	t.Helper()
	testenv.Need(t, testenv.UserNS)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := native.New(driver.Host{}, agent)
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, d, engine.Config{
		AllowDegraded: true, IdleTimeout: -1,
		Default: sandbar.Limits{Memory: 1 << 30, Disk: 2 << 30, Timeout: 5 * time.Minute, Output: 64 << 20},
		Max:     sandbar.Limits{Memory: 4 << 30},
	}, o)
}

// wantRun runs a command and compares all of the answer.
func (r *rig) wantRun(cmd string, want m) {
	r.t.Helper()
	if got := fmt.Sprint(r.run(cmd)); got != fmt.Sprint(want) {
		r.t.Errorf("%s\n got %.300s\nwant %.300s", cmd, got, fmt.Sprint(want))
	}
}

func TestRun(t *testing.T) {
	r := newNative(t, Options{})
	r.wantRun("echo hello", m{"stdout": "hello\n", "stderr": "", "code": 0.0})
	r.wantRun("", m{"stdout": "", "stderr": "", "code": 0.0})
	r.wantRun("echo no >&2; exit 3", m{"stdout": "", "stderr": "no\n", "code": 3.0, "error": "Non-zero exit code"})
	r.wantRun("kill -9 $$", m{"stdout": "", "stderr": "", "code": -1.0, "error": "Non-zero exit code"})
	r.wantRun("cat; pwd", m{"stdout": "/home/user\n", "stderr": "", "code": 0.0})
	r.wantRun(`printf 'a\377b\342\202'`, m{"stdout": "a\uFFFDb\uFFFD", "stderr": "", "code": 0.0})
	got := r.call("/run", m{"cmd": `printf 'a\377b'`, "encoding": "base64"})
	if got["stdout"] != base64.StdEncoding.EncodeToString([]byte("a\xffb")) || got["encoding"] != "base64" {
		t.Errorf("base64: %v", got)
	}
	got = r.call("/run", m{"cmd": "pwd; echo $A", "cwd": "/tmp", "env": m{"A": "b c"}, "unknown": []any{1, m{}}})
	if got["stdout"] != "/tmp\nb c\n" {
		t.Errorf("cwd and env: %v", got)
	}
}

// 200 kB on one pipe while the other is open: whoever reads one to its end and
// then the other waits for ever.
func TestRunReadsBothPipes(t *testing.T) {
	r := newNative(t, Options{})
	got := r.run("head -c 200000 /dev/zero | tr '\\0' e >&2; head -c 200000 /dev/zero | tr '\\0' o; echo end")
	if got["stderr"] != strings.Repeat("e", 200000) || got["stdout"] != strings.Repeat("o", 200000)+"end\n" || got["code"] != 0.0 {
		t.Errorf("%d bytes of stderr, %d of stdout, code %v", len(got["stderr"].(string)), len(got["stdout"].(string)), got["code"])
	}
}
