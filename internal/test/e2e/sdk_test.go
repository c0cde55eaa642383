package e2e

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// sdkSteps is the number of steps of testdata/sdk/conformance.json.
const sdkSteps = 44

// The SDKs, installed from the packages that scripts/sdk.sh builds, do all steps of
// testdata/sdk/conformance.json. Their streams continue on broken connections.
func TestSDKs(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.PyWheels, testenv.NpmTypeScript)
	dir := t.TempDir()
	buildSDKs(t, dir)
	d := newDaemon(t, t.TempDir())
	proxy := newCutter(t, d.addr)
	steps, err := filepath.Abs("testdata/sdk/conformance.json")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			before := proxy.count()
			cmd := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...)
			cmd.Dir = dir
			cmd.Env = append(environ(), "SANDBAR_URL=http://"+proxy.addr, "SANDBAR_TOKEN="+token, "PYTHONPATH="+filepath.Join(dir, "py"),
				"STEPS="+(&url.URL{Scheme: "file", Path: steps}).String(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
			out, err := cmd.CombinedOutput()
			if n := bytes.Count(out, []byte("ok ")) - bytes.Count(out, []byte("not ok ")); err != nil || n != sdkSteps {
				t.Errorf("%v; %d steps are right, want %d:\n%s", err, n, sdkSteps, out)
			}
			if cuts := proxy.count() - before; cuts < 4 {
				t.Errorf("%d streams were cut", cuts)
			}
		}
	}
	t.Run("python", run("/usr/bin/python3", "run.py", "sync"))
	t.Run("python async", run("/usr/bin/python3", "run.py", "async"))
	t.Run("typescript", run("/usr/bin/node", "run.mjs"))
	t.Run("go", func(t *testing.T) {
		before := proxy.count()
		runGoClient(t, "http://"+proxy.addr)
		if cuts := proxy.count() - before; cuts < 4 {
			t.Errorf("%d streams were cut", cuts)
		}
	})
	d.endClean(t)
}

// buildSDKs builds the packages and installs them into dir: dir/py for Python, dir/node_modules for
// node, with the test programs beside them.
func buildSDKs(t *testing.T, dir string) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	do := func(in, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t, 10*time.Minute), name, args...)
		cmd.Dir = in
		cmd.Env = append(environ(), "TESTENV_CACHE="+testenv.Cache(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	packages := filepath.Join(dir, "packages")
	do(root, "sh", "scripts/sdk.sh", "v1.0.0", packages)
	wheel := testenv.WheelsDir()
	do(dir, "/usr/bin/python3", glob(t, filepath.Join(wheel, "pip-*.whl"))[0]+"/pip", "install", "--quiet", "--no-index", "--no-compile", "--root-user-action", "ignore",
		"--find-links", wheel, "--target", filepath.Join(dir, "py"), glob(t, filepath.Join(packages, "*-any.whl"))[0])
	do(dir, "/usr/bin/npm", "install", "--prefix", dir, "--offline", "--no-audit", "--no-fund", glob(t, filepath.Join(packages, "*.tgz"))[0])
	for _, name := range []string{"run.py", "run.mjs", "conformance.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", "sdk", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// cutter is a proxy that cuts connections with a process's log, or with events, after a part of it.
type cutter struct {
	addr string
	mu   sync.Mutex
	cuts int
}

// cutAfter is the number of bytes of such a response before the cut.
const cutAfter = 1500

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			outside, err := ln.Accept()
			if err != nil {
				return
			}
			inside, err := net.Dial("tcp", to)
			if err != nil {
				outside.Close()
				continue
			}
			conns.Go(func() { c.join(outside, inside) })
		}
	})
	return c
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// join copies in both directions. It passes on the end of each, as a connection without a proxy
// does: a side that is cut off while it sends would lose what it has not read.
func (c *cutter) join(outside, inside net.Conn) {
	var log atomic.Bool // the last request is for a log or for events
	cut := func() { outside.Close(); inside.Close() }
	defer cut()
	var ways sync.WaitGroup
	ways.Go(func() {
		defer inside.(*net.TCPConn).CloseWrite()
		buf := make([]byte, 64<<10)
		for {
			n, err := outside.Read(buf)
			log.Store(bytes.Contains(buf[:n], []byte("process_logs_streaming")) || bytes.Contains(buf[:n], []byte("/v1/events")))
			if _, werr := inside.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	ways.Go(func() {
		defer outside.(*net.TCPConn).CloseWrite()
		buf := make([]byte, 256)
		for sent := 0; ; {
			n, err := inside.Read(buf)
			if sent += n; !log.Load() {
				sent = 0
			}
			if _, werr := outside.Write(buf[:n]); err != nil || werr != nil {
				return
			}
			if sent > cutAfter {
				c.mu.Lock()
				c.cuts++
				c.mu.Unlock()
				cut()
				return
			}
		}
	})
	ways.Wait()
}
