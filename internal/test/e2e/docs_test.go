//go:build unix

package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// page is a document and the requirements of its examples. The examples of a page run in order,
// in one shell and one directory.
type page struct {
	file  string
	needs []testenv.Requirement
}

var pages = []page{
	{"README.md", []testenv.Requirement{testenv.Python, testenv.WasmModules}},
	{"docs/api.md", nil},
	{"docs/audit.md", []testenv.Requirement{testenv.UserNS}},
	{"docs/configuration.md", nil},
	{"docs/console.md", []testenv.Requirement{testenv.UserNS, testenv.Curl}},
	{"docs/contexts.md", []testenv.Requirement{testenv.Python, testenv.Node}},
	{"docs/deploy.md", []testenv.Requirement{testenv.Curl}},
	{"docs/drivers.md", []testenv.Requirement{testenv.Python, testenv.WasmModules}},
	{"docs/e2b.md", []testenv.Requirement{testenv.Freezer, testenv.Curl, testenv.Python, testenv.NpmE2B, testenv.PyE2B}},
	{"docs/events.md", []testenv.Requirement{testenv.Curl}},
	{"docs/execution.md", []testenv.Requirement{testenv.Python, testenv.WasmModules}},
	{"docs/executor.md", []testenv.Requirement{testenv.Python, testenv.Curl, testenv.PyKoyeb}},
	{"docs/fathom.md", []testenv.Requirement{testenv.Python, testenv.Curl, testenv.NpmWS, testenv.PyWebsockets, testenv.PyWheels, testenv.NpmTypeScript}},
	{"docs/go.md", nil},
	{"docs/iii-errors.md", nil},
	{"docs/iii.md", []testenv.Requirement{testenv.NpmIII, testenv.PyIII}},
	{"docs/kubernetes.md", nil},
	{"docs/mcp.md", []testenv.Requirement{testenv.Python, testenv.PyMCP}},
	{"docs/observability.md", []testenv.Requirement{testenv.UserNS, testenv.Curl}},
	{"docs/packages.md", nil},
	{"docs/peers.md", nil},
	{"docs/previews.md", []testenv.Requirement{testenv.Python, testenv.Curl}},
	{"docs/protocols.md", nil},
	{"docs/python.md", []testenv.Requirement{testenv.PyWheels, testenv.NpmTypeScript}},
	{"docs/scale.md", nil},
	{"docs/sandboxes.md", []testenv.Requirement{testenv.Freezer, testenv.Python, testenv.Curl, testenv.JQ}},
	{"docs/snapshots.md", []testenv.Requirement{testenv.Freezer}},
	{"docs/stdio.md", []testenv.Requirement{testenv.Python, testenv.WasmModules}},
	{"docs/system-calls.md", nil},
	{"docs/tenants.md", []testenv.Requirement{testenv.UserNS}},
	{"docs/terminals.md", []testenv.Requirement{testenv.UserNS}},
	{"docs/typescript.md", []testenv.Requirement{testenv.PyWheels, testenv.NpmTypeScript}},
	{"docs/vm.md", nil},
}

// Every example of every document runs unchanged. An example that cannot run in a test has the
// comment <!-- not run: REASON --> before it. A server does not share its variables with the other
// examples, unless the text after it says "with the same NAME".
func TestDocuments(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"README.md"}
	for _, f := range glob(t, filepath.Join(root, "docs", "*.md")) {
		files = append(files, "docs/"+filepath.Base(f))
	}
	for _, f := range files {
		if !slices.ContainsFunc(pages, func(p page) bool { return p.file == f }) {
			t.Errorf("%s is not among the pages of this test", f)
		}
	}
	for _, p := range pages {
		t.Run(filepath.Base(p.file), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				t.Fatal(err)
			}
			all, err := examplesOf(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == 0 {
				return
			}
			testenv.Need(t, append([]testenv.Requirement{testenv.Linux, testenv.UserNS}, p.needs...)...)
			p.run(t, all)
		})
	}
}

// fencedBlock is one fenced block of a document.
type fencedBlock struct {
	line     int
	language string
	text     string
	ready    string // an address: the block starts a server that listens there
	shared   bool   // the reader sets the server's variable in the other shell too
	prints   string // lines of its output: the block "text" that follows
}

var (
	fence      = regexp.MustCompile("^```([a-z]*)$")
	notRun     = regexp.MustCompile(`^<!-- not run: .+ -->$`)
	background = regexp.MustCompile(`^<!-- a server, ready when (\S+) answers -->$`)
	sameShell  = regexp.MustCompile(`with the same [A-Z_]+`)
	runs       = []string{"console", "javascript", "js", "python", "sh", "yaml"}
)

// examplesOf returns the blocks of a document that run as examples.
func examplesOf(text string) (all []fencedBlock, err error) {
	var block *fencedBlock
	var before string
	skip, last := false, false // last: a block has been taken, and no other came since
	for i, line := range strings.Split(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case block != nil && line == "```":
			switch {
			case block.language == "text" && last:
				all[len(all)-1].prints = block.text
				last = false
			case !skip && slices.Contains(runs, block.language):
				all = append(all, *block)
				last = true
			default:
				last = false
			}
			block, before = nil, ""
		case block != nil:
			block.text += line + "\n"
		case m != nil:
			block, skip = &fencedBlock{line: i + 2, language: m[1]}, notRun.MatchString(before)
			if m := background.FindStringSubmatch(before); m != nil {
				block.ready = m[1]
			}
		case strings.HasPrefix(line, "```"):
			return nil, fmt.Errorf("line %d: the language of a block is one word: %s", i+1, line)
		case line != "":
			before = line
			if last && all[len(all)-1].ready != "" && sameShell.MatchString(line) {
				all[len(all)-1].shared = true
			}
		}
	}
	if block != nil {
		return nil, fmt.Errorf("line %d: the block has no end", block.line)
	}
	return all, nil
}

// documented are the addresses in the examples. The test replaces each by a free one.
var documented = []string{"127.0.0.1:8080", "127.0.0.1:3030", "127.0.0.1:3031", "127.0.0.1:49134", "127.0.0.1:18000"}

// run runs the examples of a page.
func (p page) run(t *testing.T, all []fencedBlock) {
	dir := t.TempDir()
	free := map[string]string{}
	var pairs []string
	for _, a := range documented {
		free[a] = testenv.FreeAddress(t)
		pairs = append(pairs, a, free[a], port(a), port(free[a]))
	}
	pairs = append(pairs, "~/.local/state/sandbar", filepath.Join(dir, "state"))
	replace := strings.NewReplacer(pairs...)
	provide(t, dir)
	needs := func(r testenv.Requirement) bool {
		return slices.ContainsFunc(p.needs, func(n testenv.Requirement) bool { return n.Name == r.Name })
	}
	env := environ()
	if needs(testenv.WasmModules) {
		env = append(env, "SANDBAR_CONFIG="+newStdioSandbox(t).config)
	}
	python := []string{testenv.PythonPath(), testenv.KoyebPath(), testenv.PyIIIPath(), testenv.PyE2BPath()}
	if needs(testenv.PyMCP) {
		python = []string{testenv.PyMCPPath()} // its dependencies are of other versions
	}
	if needs(testenv.NpmTypeScript) {
		sdk := t.TempDir()
		buildSDKs(t, sdk)
		python = []string{filepath.Join(sdk, "py"), testenv.PythonPath()}
		if err := os.Symlink(filepath.Join(sdk, "node_modules", "sandbar"), filepath.Join(dir, "node_modules", "sandbar")); err != nil {
			t.Fatal(err)
		}
	}
	s := newSession(t, dir, append(env, "HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":/usr/local/bin:/usr/bin:/bin",
		"NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH="+strings.Join(python, ":"),
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"),
		"SANDBAR_LISTEN="+free["127.0.0.1:8080"], "SANDBAR_URL=http://"+free["127.0.0.1:8080"],
		"PORT="+port(free["127.0.0.1:3030"]), "PROXY_PORT="+port(free["127.0.0.1:3031"])))
	for _, e := range all {
		e.text, e.ready = replace.Replace(e.text), replace.Replace(e.ready)
		if err := s.example(e); err != nil {
			t.Errorf("%s:%d: %v", p.file, e.line, err)
			break
		}
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// provide puts the commands and the npm packages of the examples into dir.
func provide(t *testing.T, dir string) {
	t.Helper()
	link := func(to, name string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sandbar", "wasm-sandbox"} {
		link(testenv.Build(t, "cmd/sandbar"), filepath.Join(dir, "bin", name))
	}
	link(filepath.Join(testenv.NodeModules(), "ws"), filepath.Join(dir, "node_modules", "ws"))
	link(filepath.Join(testenv.NpmIIIModules(), "iii-sdk"), filepath.Join(dir, "node_modules", "iii-sdk"))
	link(filepath.Join(testenv.NpmE2BModules(), "@e2b"), filepath.Join(dir, "node_modules", "@e2b"))
}

// session is a bash that runs examples.
type session struct {
	cmd     *exec.Cmd
	dir     string
	stdin   io.Writer
	answers *bufio.Scanner
	n       int
}

func newSession(t *testing.T, dir string, env []string) *session {
	t.Helper()
	s := &session{cmd: exec.CommandContext(t.Context(), "/bin/bash", "--noprofile", "--norc"), dir: dir}
	s.cmd.Dir, s.cmd.Env = dir, env
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Cancel = func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdin, s.answers = stdin, bufio.NewScanner(stdout)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// end stops the servers of the examples, and the shell.
func (s *session) end() error {
	_, err := s.do("trap '' TERM; kill $(jobs -p) 2>/dev/null; wait; echo ended")
	if err != nil {
		return fmt.Errorf("the servers do not end: %w", err)
	}
	io.WriteString(s.stdin, "exit 0\n")
	return s.cmd.Wait()
}

// do runs a command that prints one line, and returns that line.
func (s *session) do(line string) (string, error) {
	timer := time.AfterFunc(2*time.Minute, func() { s.cmd.Cancel() })
	defer timer.Stop()
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		return "", err
	}
	if !s.answers.Scan() {
		return "", errors.New("the shell has ended")
	}
	return s.answers.Text(), nil
}

// source runs a file in the shell and returns its output and exit code. With strict the shell
// exits at the first failing command.
func (s *session) source(text string, strict bool) (output string, code string, err error) {
	s.n++
	name := filepath.Join(s.dir, fmt.Sprintf(".example-%d", s.n))
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return "", "", err
	}
	set := "+e"
	if strict {
		set = "-e"
	}
	code, err = s.do(fmt.Sprintf("set %s; . %s >%s.out 2>&1 </dev/null; c=$?; set +e; echo $c", set, name, name))
	b, readErr := os.ReadFile(name + ".out")
	return string(b), code, cmp.Or(err, readErr)
}

// example runs one example.
func (s *session) example(e fencedBlock) error {
	switch e.language {
	case "console":
		return s.console(e.text)
	case "sh":
		text := strings.TrimSuffix(e.text, "\n")
		switch {
		case e.ready == "":
		case e.shared:
			text += " &"
		default: // a reader starts a server in a shell of its own
			before, command := "", text
			if i := strings.LastIndex(text, "\n"); i >= 0 {
				before, command = text[:i+1], text[i+1:]
			}
			text = "(" + before + "exec env " + command + ") &"
		}
		output, code, err := s.source(text+"\n", e.ready == "")
		if err != nil || code != "0" {
			return fmt.Errorf("exit code %s, %v; it printed:\n%s", code, err, output)
		}
		return s.await(e.ready)
	case "yaml":
		return s.program(e, ".yaml", "sandbar serve --print-config --config ", "#")
	case "python":
		return s.program(e, ".py", "python3 ", "#")
	case "javascript", "js":
		return s.program(e, ".mjs", "node ", "//")
	}
	return nil
}

// await waits until a server answers at an address, if there is one.
func (s *session) await(address string) error {
	if address == "" {
		return nil
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			output, _ := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf(".example-%d.out", s.n)))
			return fmt.Errorf("the server is not ready: %w; it printed:\n%s", err, output)
		}
	}
}

// program runs a file in a programming language. Comments at the end of its lines are the
// expected output.
func (s *session) program(e fencedBlock, suffix, command, comment string) error {
	name := filepath.Join(s.dir, fmt.Sprintf("example-%d%s", s.n, suffix))
	if err := os.WriteFile(name, []byte(e.text), 0o644); err != nil {
		return err
	}
	output, code, err := s.source(command+name+"\n", false)
	if err != nil || code != "0" {
		return fmt.Errorf("exit code %s, %v; it printed:\n%s", code, err, output)
	}
	rest := "\n" + output // SDKs print to the same stream
	for _, want := range e.expected(comment) {
		_, after, found := strings.Cut(rest, "\n"+want+"\n")
		if !found {
			return fmt.Errorf("it does not print %q; it printed:\n%s", want, output)
		}
		rest = "\n" + after
	}
	return nil
}

// expected are the lines that a program prints, by the block below it and by the comments behind
// its calls.
func (e fencedBlock) expected(comment string) (lines []string) {
	if e.prints != "" {
		lines = strings.Split(strings.TrimSuffix(e.prints, "\n"), "\n")
	}
	for _, line := range strings.Split(e.text, "\n") {
		call, want, ok := strings.Cut(line, "  "+comment+" ")
		if ok && (strings.Contains(call, "print(") || strings.Contains(call, "console.log(")) {
			lines = append(lines, want)
		}
	}
	return lines
}

// console runs the commands after "$ " and compares their output with the lines below. "…"
// matches any text within a line, and alone on a line any lines.
func (s *session) console(text string) error {
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		lines := strings.Split(strings.TrimSuffix(part, "\n"), "\n")
		n := 1
		for n < len(lines) && strings.HasPrefix(lines[n], "> ") {
			n++
		}
		command := strings.ReplaceAll(strings.Join(lines[:n], "\n"), "\n> ", "\n")
		want := strings.Join(lines[n:], "\n")
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			output, _, err := s.source(command+"\n", false)
			if err != nil {
				return err
			}
			if sessionPattern(want).MatchString(strings.TrimSuffix(output, "\n")) {
				break
			}
			// A background process prints when it gets to it.
			if !strings.HasPrefix(command, "sandbar logs ") || time.Now().After(end) {
				return fmt.Errorf("%s\nprinted:\n%s\nwant:\n%s", command, output, want)
			}
		}
	}
	return nil
}

func sessionPattern(want string) *regexp.Regexp {
	lines := strings.Split(want, "\n")
	for i, l := range lines {
		if strings.TrimSpace(l) == "…" {
			lines[i] = "(?s:.*)"
			continue
		}
		lines[i] = strings.ReplaceAll(regexp.QuoteMeta(l), "…", ".*")
	}
	return regexp.MustCompile("^" + strings.Join(lines, "\n") + "$")
}
