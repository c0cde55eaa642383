package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// E2B's SDKs from npm work with a daemon, and build templates without a Docker daemon. The programs
// call every public method of their typings that docs/e2b.md does not list as unserved.
func TestE2BNpm(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.NpmE2B, testenv.NpmTypeScript, testenv.Python, testenv.Git, testenv.Curl)
	modules := "NODE_PATH=" + testenv.NpmE2BModules()
	var called []string
	t.Run("client", func(t *testing.T) { called = append(called, runE2B(t, 33, modules, "/usr/bin/node", "client.mjs")...) })
	t.Run("templates", func(t *testing.T) { called = append(called, runE2B(t, 9, modules, "/usr/bin/node", "template.mjs")...) })
	if t.Failed() {
		return // without all calls there is nothing to compare
	}
	t.Run("surface", func(t *testing.T) {
		checkE2BSurface(t, called, modules+":"+testenv.NpmTypeScriptModules(), "/usr/bin/node", "surface.cjs", "declared")
	})
}

// So do those from PyPI, with both of their clients.
func TestE2BPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Freezer, testenv.PyE2B, testenv.Python, testenv.Git, testenv.Curl)
	path := "PYTHONPATH=" + testenv.PyE2BPath()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			var called []string
			t.Run("client", func(t *testing.T) {
				called = append(called, runE2B(t, 13, path, "/usr/bin/python3", "client.py", mode)...)
			})
			t.Run("templates", func(t *testing.T) {
				called = append(called, runE2B(t, 5, path, "/usr/bin/python3", "template.py", mode)...)
			})
			if t.Failed() {
				return
			}
			t.Run("surface", func(t *testing.T) {
				checkE2BSurface(t, called, path, "/usr/bin/python3", "surface.py", "declared", mode)
			})
		})
	}
}

// runE2B runs a test program of testdata/e2b against a daemon. All its checks must hold, and
// nothing of the daemon may be left. It returns the methods that the program has called.
func runE2B(t *testing.T, checks int, env, program string, args ...string) (called []string) {
	t.Helper()
	world := e2bWorld(t)
	var settings []string
	if host, _, ok := strings.Cut(world, " "); ok {
		settings = append(settings, "SANDBAR_NETWORK_ALLOW_PRIVATE="+host)
	}
	vars := []string{env, "E2B_TEST_WORLD=" + world}
	if testenv.Freezer.Err() == nil {
		vars = append(vars, "E2B_TEST_GROUPS=1") // the driver can measure and save sandboxes
	}
	return runE2BOn(t, checks, settings, vars, program, args...)
}

// runE2BOn is runE2B with further settings of the daemon, and variables of the program.
func runE2BOn(t *testing.T, checks int, settings, vars []string, program string, args ...string) (called []string) {
	t.Helper()
	d := newDaemon(t, t.TempDir(), append(settings, "SANDBAR_E2B=true")...)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // of checks in emulated machines
	defer cancel()
	args[0] = filepath.Join("testdata", "e2b", args[0])
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(append(environ(), vars...), "E2B_API_URL=http://"+d.addr, "E2B_SANDBOX_URL=http://"+d.addr, "E2B_API_KEY="+token,
		"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("ok ")) - bytes.Count(out, []byte("not ok ")); err != nil || n != checks {
		t.Errorf("%v; %d checks held, want %d:\n%s", err, n, checks, out)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return linesAfter("called ", out)
}

// e2bWorld serves a page at an address that sandboxes may reach, and returns the address and the
// port; "" if sandboxes cannot have a network here.
func e2bWorld(t *testing.T) string {
	t.Helper()
	if testenv.TUN.Err() != nil {
		return ""
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsPrivate() {
			l, err := net.Listen("tcp", net.JoinHostPort(n.IP.String(), "0"))
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the world\n") })}
			go s.Serve(l)
			t.Cleanup(func() { s.Close() })
			_, port, _ := net.SplitHostPort(l.Addr().String())
			return n.IP.String() + " " + port
		}
	}
	return ""
}

// linesAfter returns the rest of the lines that begin with prefix.
func linesAfter(prefix string, out []byte) (rest []string) {
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			rest = append(rest, text)
		}
	}
	return rest
}

// checkE2BSurface checks that each public method that a program of testdata/e2b prints was called,
// or is one that docs/e2b.md lists as unserved.
func checkE2BSurface(t *testing.T, called []string, env, program string, args ...string) {
	t.Helper()
	args[0] = filepath.Join("testdata", "e2b", args[0])
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(environ(), env, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	declared := linesAfter("declared ", out)
	if err != nil || len(declared) < 100 {
		t.Fatalf("%v; the typings have %d methods", err, len(declared))
	}
	unserved := unservedOfE2B(t)
	if len(unserved) < 5 {
		t.Fatalf("docs/e2b.md lists %v as unserved", unserved)
	}
	local := []string{"ApiClient", "ConnectionConfig", "VolumeConnectionConfig", "LogEntry", "ReadyCmd", "Execution", "ExecutionError",
		"Result", "OutputMessage", "Context", "EntryInfo", "WriteInfo", "Logs"} // send no request of their own
	for _, key := range declared {
		class, method, _ := strings.Cut(strings.TrimPrefix(key, "static "), ".")
		name := camel(method)
		if slices.Contains(local, class) || slices.Contains(called, key) || slices.Contains(unserved, strings.TrimSuffix(class, "Paginator")) || slices.Contains(unserved, name) {
			continue
		}
		t.Errorf("%s is neither called by the test programs nor listed as unserved in docs/e2b.md", key)
	}
}

// camel returns a name of Python as JavaScript has it.
func camel(name string) string {
	parts := strings.Split(name, "_")
	for i, p := range parts[1:] {
		switch {
		case p == "aws" || p == "gcp" || p == "json":
			parts[i+1] = strings.ToUpper(p)
		case p != "":
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// unservedOfE2B returns the classes and methods in the rows of docs/e2b.md that say 501.
func unservedOfE2B(t *testing.T) (names []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "e2b.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(b), "## What differs from E2B")
	if !found {
		t.Fatal("docs/e2b.md has no section about what differs")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.HasPrefix(cells[2], " 501: ") {
			for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[1], -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}
