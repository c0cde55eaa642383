package wasm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// modulesDir is the directory where "make build" stores the WebAssembly modules.
const modulesDir = "../../wasm/artefact"

// testOptions select that directory, and a compilation cache that all tests share.
func testOptions(t testing.TB) map[string]string {
	t.Helper()
	cache, err := testenv.Kept("wasm")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{optionModules: modulesDir, optionCache: cache}
}

// newDriver returns a driver for tests.
func newDriver(t testing.TB) *Driver {
	t.Helper()
	testenv.Need(t, testenv.WasmModules)
	d, err := New(driver.Host{Options: testOptions(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// newBox returns a sandbox for a test.
func newBox(t testing.TB, change func(*sandbar.Spec)) driver.Sandbox {
	t.Helper()
	s := sandbar.Spec{Limits: sandbar.Limits{Memory: 256 << 20, Disk: 64 << 20, Inodes: 10000, PIDs: 64, Files: 256}}
	if change != nil {
		change(&s)
	}
	// The first sandbox waits for the compiler.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b, err := newDriver(t).Create(ctx, sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// ran is the result of a program.
type ran struct {
	Stdout string
	Exit   int
	stderr string
	result sandbar.Result
}

// run runs a program in a sandbox until it ends.
func run(t testing.TB, b driver.Sandbox, stdin string, c sandbar.Cmd) ran {
	t.Helper()
	var out, errs bytes.Buffer
	p, err := b.Start(t.Context(), c, driver.Stdio{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	timer := time.AfterFunc(2*time.Minute, func() { _ = p.Signal(9) })
	defer timer.Stop()
	r, err := p.Wait()
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	return ran{Stdout: out.String(), Exit: r.ExitCode, stderr: errs.String(), result: r}
}

// native runs a program with the host's interpreter in a new directory.
func native(t *testing.T, interpreter, file, program, stdin string, args []string) ran {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{file}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8", "TZ=UTC"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{Stdout: out.String(), Exit: cmd.ProcessState.ExitCode(), stderr: errs.String()}
}

// languageTest compares the programs of an archive with a native interpreter.
type languageTest struct {
	archive     string
	command     string // in the sandbox
	interpreter string // on the host
	extension   string
	module      string // the extension of programs that import, if it is another
	atLeast     int
	// differ are programs whose result differs, each with the reason. A listed program without a
	// difference fails the test.
	differ map[string]string
}

const (
	testStdin = "1\n22\n333\n"
)

func (l languageTest) run(t *testing.T) {
	data, err := os.ReadFile(l.archive)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(data)
	if len(archive.Files) < l.atLeast {
		t.Errorf("%s has %d programs; at least %d are wanted", l.archive, len(archive.Files), l.atLeast)
	}
	b := newBox(t, nil)
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) { l.compare(t, b, f.Name, string(f.Data)) })
	}
}

func (l languageTest) compare(t *testing.T, b driver.Sandbox, name, program string) {
	file, args := "main"+l.extension, []string{"first", "second arg"}
	if l.module != "" && strings.HasPrefix(program, "import ") {
		file = "main" + l.module
	}
	want := native(t, l.interpreter, file, program, testStdin, args)
	dir := "/tmp/" + name
	put(t, b, dir+"/"+file, program)
	got := run(t, b, testStdin, sandbar.Cmd{Args: append([]string{l.command, file}, args...), Dir: dir, Env: map[string]string{"HOME": dir}})
	diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "stderr" || p.String() == "result"
	}, cmp.Ignore()), cmp.AllowUnexported(ran{}))
	reason, known := l.differ[name]
	switch {
	case diff != "" && known:
		t.Logf("differs: %s", reason)
	case diff != "":
		t.Errorf("%s differs (-native +sandbox):\n%s\nstderr natively:\n%s\nstderr in the sandbox:\n%s", name, diff, want.stderr, got.stderr)
	case known:
		t.Errorf("%s is listed as different (%s), and it is not", name, reason)
	}
}

// put writes a file into a sandbox.
func put(t testing.TB, b driver.Sandbox, path, text string) {
	t.Helper()
	w, err := b.FS().Create(t.Context(), path, sandbar.CreateOptions{Parents: true})
	if err == nil {
		if _, err = w.Write([]byte(text)); err == nil {
			err = w.Commit()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestJavaScriptPrograms(t *testing.T) {
	testenv.Need(t, testenv.Node, testenv.Once)
	languageTest{archive: "testdata/javascript.txtar", command: "node", interpreter: "/usr/bin/node", extension: ".js", module: ".mjs", atLeast: 60,
		differ: map[string]string{}}.run(t)
}

func TestPythonPrograms(t *testing.T) {
	testenv.Need(t, testenv.Python, testenv.Once)
	languageTest{archive: "testdata/python.txtar", command: "python3", interpreter: "/usr/bin/python3", extension: ".py", atLeast: 100,
		differ: map[string]string{}}.run(t)
}
