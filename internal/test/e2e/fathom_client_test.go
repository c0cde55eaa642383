package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/client/fathom"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// cutOnce is a proxy to the daemon that cuts its first connection after a number of bytes of the
// daemon.
func cutOnce(t *testing.T, to string, after int64) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	conns.Go(func() {
		for first := true; ; first = false {
			outside, err := ln.Accept()
			if err != nil {
				return
			}
			inside, err := net.Dial("tcp", to)
			if err != nil {
				outside.Close()
				continue
			}
			most := int64(1) << 62
			if first {
				most = after
			}
			conns.Go(func() { io.Copy(inside, outside); inside.Close() })
			conns.Go(func() { io.CopyN(outside, inside, most); outside.Close(); inside.Close() })
		}
	})
	return "http://" + ln.Addr().String()
}

// The clients of the Fathom protocol in Go and Python run programs in a daemon. Wherever their
// connection is cut, a pending execution fails as retryable, and the next one runs.
func TestFathomClients(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.PyWheels, testenv.NpmTypeScript, testenv.PyWebsockets)
	d := newDaemon(t, t.TempDir())
	// The answer to the upgrade has about 300 bytes, and the messages have about 800.
	const step, last = 100, 1500
	t.Run("go", func(t *testing.T) {
		right := 0
		for after := int64(0); after < last; after += step {
			c, err := fathom.New(fathom.Options{URL: cutOnce(t, d.addr, after), Token: token, Backoff: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			program := fathom.Request{Language: "shell", Code: "echo one; echo two >&2; echo three"}
			r, err := c.Execute(within(t, time.Minute), program, nil)
			switch e, ok := errors.AsType[*fathom.Error](err); {
			case err == nil && r.Stdout == "one\nthree\n" && r.Stderr == "two\n":
				right++
			case ok && e.Code == wire.CodeNetworkError && e.Retryable && strings.HasPrefix("one\nthree\n", r.Stdout):
			default:
				t.Errorf("cut after %d bytes: %+v, %v", after, r, err)
			}
			program.Retries = 3
			if r, err := c.Execute(within(t, time.Minute), program, nil); err != nil || r.Stdout != "one\nthree\n" || r.Stderr != "two\n" {
				t.Errorf("after the cut at %d bytes: %+v, %v", after, r, err)
			}
			c.Close()
		}
		if right == 0 || right == last/step {
			t.Errorf("%d of %d first executions were right", right, last/step)
		}
	})
	t.Run("python", func(t *testing.T) {
		dir := t.TempDir()
		buildSDKs(t, dir)
		var cuts []string
		for after := int64(0); after < last; after += step {
			cuts = append(cuts, cutOnce(t, d.addr, after))
		}
		list, err := json.Marshal(cuts)
		if err != nil {
			t.Fatal(err)
		}
		program, err := filepath.Abs("testdata/fathom_client.py")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(within(t, 5*time.Minute), "/usr/bin/python3", "-W", "error", program)
		cmd.Dir = dir
		cmd.Env = append(environ(), "FATHOM_URL=http://"+d.addr, "FATHOM_TOKEN="+token, "FATHOM_CUTS="+string(list),
			"PYTHONPATH="+filepath.Join(dir, "py")+":"+testenv.PythonPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(`^ok \d{2,}\n$`).Match(out) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	d.endClean(t)
}
