package shell

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/tools"
)

// The test suites of toybox, busybox and bwk awk, from Debian's source packages. Each file runs in
// a new sandbox: the shell interprets it, and its utilities are under test.

var updateSuites = flag.Bool("update-suites", false, "write testdata/suites/unsupported.golden: drop the cases that pass, add those that fail with class \"?\"")

//go:embed testdata/suites/harness.sh
var suiteHarness string

const unsupportedGolden = "testdata/suites/unsupported.golden"

// suiteTime bounds one file of a suite.
const suiteTime = 5 * time.Minute

// outcome has the results of the cases of one file, by name.
type outcome struct {
	mu      sync.Mutex
	passed  map[string]bool
	details map[string]string // of the last case: what differs
	seen    map[string]int
	stdin   string
	want    string
	skip    func(name string) bool
}

func newOutcome(skip func(string) bool) *outcome {
	return &outcome{passed: map[string]bool{}, details: map[string]string{}, seen: map[string]int{}, skip: skip}
}

// name makes a case's name one line, and distinct from those of earlier cases.
func (o *outcome) name(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '.'
		}
		return r
	}, s))
	if n := o.seen[s]; n > 1 {
		return fmt.Sprintf("%s (%d)", s, n)
	}
	return s
}

func (o *outcome) set(name string, ok bool, detail string) {
	o.passed[name] = ok
	o.details[name] = detail
}

// programs are the functions that testdata/suites/harness.sh calls.
func (o *outcome) programs() map[string]Program {
	return map[string]Program{
		"case_begin": func(_ context.Context, c *ProgramContext) int {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.seen[c.Args[1]]++
			if o.skip(o.name(c.Args[1])) {
				o.set(o.name(c.Args[1]), false, "does not run")
				return 1
			}
			o.want, o.stdin = decodeEcho(c.Args[2]), decodeEcho(c.Args[4])
			_ = c.FS.WriteFile(c.Dir, "expected", []byte(o.want), 0o644)
			if c.Args[3] != "" || c.Getenv("SUITE") == "busybox" {
				_ = c.FS.WriteFile(c.Dir, "input", []byte(decodeEcho(c.Args[3])), 0o644)
			}
			return 0
		},
		"case_stdin": func(_ context.Context, c *ProgramContext) int {
			_, _ = c.Stdout.Write([]byte(o.stdin))
			return 0
		},
		"case_end": func(_ context.Context, c *ProgramContext) int {
			o.mu.Lock()
			defer o.mu.Unlock()
			got, err := c.FS.ReadFile(c.Dir, "actual")
			if n, _ := strconv.Atoi(c.Args[2]); n > 128 && c.Getenv("SUITE") == "toybox" {
				got = fmt.Appendf(got, "exited with signal (or returned %d)\n", n)
			}
			if c.Getenv("NOSPACE") != "" {
				got, o.want = bytes.ReplaceAll(got, []byte(" "), nil), strings.ReplaceAll(o.want, " ", "")
			}
			ok := err == nil && string(got) == o.want && c.Args[2] != "usage"
			o.set(o.name(c.Args[1]), ok, fmt.Sprintf("got (status %s):\n%s\nwant:\n%s", c.Args[2], got, o.want))
			return 0
		},
		"recho": func(_ context.Context, c *ProgramContext) int {
			for i, a := range c.Args[1:] {
				fmt.Fprintf(c.Stdout, "argv[%d] = <%s>\n", i+1, visible(a))
			}
			return 0
		},
		"zecho": func(_ context.Context, c *ProgramContext) int {
			fmt.Fprintln(c.Stdout, strings.Join(c.Args[1:], " "))
			return 0
		},
		"busybox": func(ctx context.Context, c *ProgramContext) int {
			applet := *c
			applet.Args = c.Args[1:]
			return c.Run(ctx, &applet)
		},
	}
}

// visible writes control characters as ^X, as busybox's recho does.
func visible(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c < ' ':
			b.WriteByte('^')
			b.WriteByte(c + 64)
		case c == 0x7f:
			b.WriteString("^?")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

var echoEscape = regexp.MustCompile(`\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|0[0-7]{0,3}|[0-7]{1,3}|[abcefnrtv\\E])`)

// decodeEcho is what bash's "echo -ne" prints for a word.
func decodeEcho(s string) string {
	s, _, _ = strings.Cut(strings.ReplaceAll(s, `\\`, "\\\x00"), `\c`)
	s = strings.ReplaceAll(s, "\\\x00", `\\`)
	return echoEscape.ReplaceAllStringFunc(s, func(e string) string {
		simple := map[byte]string{'a': "\a", 'b': "\b", 'e': "\x1b", 'E': "\x1b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': "\\"}
		if text, ok := simple[e[1]]; ok && len(e) == 2 {
			return text
		}
		switch e[1] {
		case 'x':
			n, _ := strconv.ParseUint(e[2:], 16, 8)
			return string([]byte{byte(n)})
		case 'u', 'U':
			n, _ := strconv.ParseUint(e[2:], 16, 32)
			return string(rune(n))
		}
		n, _ := strconv.ParseUint(e[1:], 8, 16)
		return string([]byte{byte(n)})
	})
}

// suiteFile is one test file and the way it is run.
type suiteFile struct {
	suite string // toybox, busybox, ash or awk
	name  string // within its suite
	run   func(t *testing.T, o *outcome, stderr *bytes.Buffer)
}

func (f suiteFile) full() string { return f.suite + "/" + f.name }

// suiteFS is a file system with a suite's files in /suite and an empty /suite/run.
func suiteFS(t *testing.T, dir string) *memfs.FS {
	t.Helper()
	f := memfs.New(memfs.Limits{Bytes: 128 << 20, Inodes: 20_000})
	if err := Install(f, map[string]Program{"case_begin": nil, "case_stdin": nil, "case_end": nil, "recho": nil, "zecho": nil, "busybox": nil}); err != nil {
		t.Fatal(err)
	}
	if err := f.MkdirAll("/", "/suite", 0o755); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil || inside == "." {
			return err
		}
		to := "/suite/" + filepath.ToSlash(inside)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return f.MkdirAll("/", to, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return f.Symlink(target, "/", to)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return f.WriteFile("/", to, b, info.Mode().Perm()|0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.MkdirAll("/", "/suite/run", 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// runSuite runs a command in a sandbox. A timeout is a failure.
func runSuite(t *testing.T, o *outcome, f *memfs.FS, dir string, out, errs *bytes.Buffer, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	env = append([]string{"TZ=UTC", "LANG=C.UTF-8", "HOME=/home/user", "USER=user"}, env...)
	if _, err := Run(ctx, Config{FS: f, Env: env, Dir: dir, Args: args, Stdout: out, Stderr: errs, Programs: o.programs()}); err != nil {
		t.Errorf("%v; stderr: %s", err, tailOf(errs))
	}
}

func tailOf(b *bytes.Buffer) string {
	s := b.String()
	return s[max(0, len(s)-4000):]
}

// suiteFiles returns the files of the suites for commands that the shell has.
func suiteFiles(t *testing.T) []suiteFile {
	t.Helper()
	root := testenv.ShellSuitesDir()
	ours := maps.Clone(tools.Programs())
	ours["sh"] = nil
	var files []suiteFile
	each := func(pattern string, f func(file, base string)) {
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, name := range names {
			base := filepath.Base(name)
			f(name, strings.TrimSuffix(base, filepath.Ext(base)))
		}
	}
	each("toybox/tests/*.test", func(_, base string) {
		if _, ok := ours[base]; ok {
			files = append(files, suiteFile{"toybox", base, func(t *testing.T, o *outcome, errs *bytes.Buffer) {
				f := suiteFS(t, filepath.Join(root, "toybox", "tests"))
				runSuite(t, o, f, "/suite/run", errs, errs, []string{"SUITE=toybox", "FILES=/suite/files", "CMDNAME=" + base, "C=/usr/bin/" + base, "SKIP=0", "LC_COLLATE=C"},
					"bash", "-c", suiteHarness+". /suite/"+base+".test")
			}})
		}
	})
	each("busybox/testsuite/*.tests", func(_, base string) {
		if _, ok := ours[base]; ok {
			files = append(files, suiteFile{"busybox", base, func(t *testing.T, o *outcome, errs *bytes.Buffer) {
				f := suiteFS(t, filepath.Join(root, "busybox", "testsuite"))
				_ = f.WriteFile("/suite", "testing.sh", []byte(suiteHarness), 0o644)
				runSuite(t, o, f, "/suite", errs, errs, []string{"SUITE=busybox", "tsdir=/suite", "bindir=/suite/bin"}, "bash", "/suite/"+base+".tests")
			}})
		}
	})
	each("busybox/testsuite/*/*", func(file, base string) {
		applet := filepath.Base(filepath.Dir(file))
		if _, ok := ours[applet]; ok {
			files = append(files, suiteFile{"busybox", applet + "/" + filepath.Base(file), func(t *testing.T, o *outcome, errs *bytes.Buffer) {
				f := suiteFS(t, filepath.Join(root, "busybox", "testsuite", applet))
				_ = f.MkdirAll("/", "/suite/run", 0o755)
				runSuite(t, o, f, "/suite/run", errs, errs, []string{"d=/suite", "SUITE=busybox"}, "sh", "-c", `sh -x -e "/suite/$1"; SUITE=old; : >actual; case_begin "$1" "" "" ""; case_end "$1" $?`, "sh", filepath.Base(file))
			}})
		}
	})
	each("busybox/shell/ash_test/ash-*/*.tests", func(file, base string) {
		dir := filepath.Dir(file)
		want, err := os.ReadFile(filepath.Join(dir, base+".right"))
		if err != nil {
			return
		}
		files = append(files, suiteFile{"ash", filepath.Base(dir) + "/" + base, func(t *testing.T, o *outcome, _ *bytes.Buffer) {
			if o.skip(base) {
				o.set(base, false, "does not run")
				return
			}
			f := suiteFS(t, dir)
			var out bytes.Buffer
			env := []string{"THIS_SH=/bin/sh"}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, option := range ashConfig.FindAllString(string(text), -1) {
				env = append(env, option+"=y")
			}
			runSuite(t, o, f, "/suite", &out, &out, env, "sh", "./"+base+".tests")
			o.set(base, anyMessage(out.String()) == anyMessage(string(want)), fmt.Sprintf("got:\n%s\nwant:\n%s", &out, want))
		}})
	})
	each("original-awk/testdir/T.*", func(file, _ string) {
		base := filepath.Base(file)
		files = append(files, suiteFile{"awk", base, func(t *testing.T, o *outcome, errs *bytes.Buffer) { runAwkSuite(t, o, errs, file, base) }})
	})
	return files
}

// ashConfig matches the names of build options, by which a test requires features of ash.
var ashConfig = regexp.MustCompile(`\bCONFIG_[A-Z_]+\b`)

var shellMessage = regexp.MustCompile(`(?m)^(\./[\w./]+|/bin/sh|sh|ash|SHELL|0): .*$`)

// anyMessage replaces error messages of the shell by a constant, because their texts differ between
// shells.
func anyMessage(s string) string { return shellMessage.ReplaceAllString(s, "(message)") }

// runAwkSuite runs a script of bwk awk, which prints a line "BAD: ..." for each case that fails.
func runAwkSuite(t *testing.T, o *outcome, errs *bytes.Buffer, file, base string) {
	f := suiteFS(t, filepath.Dir(file))
	for name, as := range map[string]string{"/suite/echo": "echo", "/a.out": "awk"} {
		if err := f.WriteFile("/", name, []byte("#!"+marker+" "+as+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	runSuite(t, o, f, "/suite", &out, errs, []string{"awk=awk", "oldawk=awk"}, "sh", "./"+base)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.Contains(line, "BAD") {
			bad++
			o.seen[line]++
			o.set(o.name(line), false, out.String())
		}
	}
	for i := range max(0, bytes.Count(text, []byte("BAD"))-bad) {
		o.set(fmt.Sprintf("passed %d", i), true, "")
	}
}

func TestSuitesOfOthers(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.ShellSuites)
	listed := readUnsupported(t)
	var mu sync.Mutex
	results := map[string]map[string]bool{}
	t.Run("files", func(t *testing.T) {
		for _, f := range suiteFiles(t) {
			if listed.class[f.full()+"\t*"] != "" {
				continue // the list excludes the whole file
			}
			t.Run(f.full(), func(t *testing.T) {
				t.Parallel()
				o := newOutcome(func(name string) bool { return listed.races(f.full(), name) })
				var errs bytes.Buffer
				f.run(t, o, &errs)
				mu.Lock()
				results[f.full()] = o.passed
				mu.Unlock()
				for _, name := range slices.Sorted(maps.Keys(o.passed)) {
					_, known := listed.class[f.full()+"\t"+name]
					switch ok := o.passed[name]; {
					case !ok && !known && !*updateSuites:
						t.Errorf("%s fails and is not in %s:\n%s", name, unsupportedGolden, o.details[name])
					case ok && known && !*updateSuites:
						t.Errorf("%s passes; remove it from %s", name, unsupportedGolden)
					}
				}
				if t.Failed() {
					t.Logf("stderr: %s", tailOf(&errs))
				}
			})
		}
	})
	passed, failed := 0, 0
	for file, cases := range results {
		for name, ok := range cases {
			if ok {
				passed++
				continue
			}
			failed++
			if key := file + "\t" + name; listed.class[key] == "" {
				listed.class[key] = "?"
			}
		}
	}
	t.Logf("%d cases pass, %d are not supported", passed, failed)
	for key := range listed.class {
		file, name, _ := strings.Cut(key, "\t")
		cases, ran := results[file]
		if ok, known := cases[name]; ran && (!known || ok) {
			if !*updateSuites && !known {
				t.Errorf("%s has no case %q; remove it from %s", file, name, unsupportedGolden)
			}
			delete(listed.class, key)
		}
	}
	if *updateSuites {
		listed.write(t)
	}
}

// unsupported is the golden list.
type unsupported struct {
	head  string            // the comments on top, with the classes
	class map[string]string // by "suite/file<tab>case"
}

// races reports whether the outcome of a case depends on timing.
func (u *unsupported) races(file, name string) bool { return u.class[file+"\t"+name] == "race" }

func readUnsupported(t *testing.T) *unsupported {
	t.Helper()
	b, err := os.ReadFile(unsupportedGolden)
	if err != nil {
		t.Fatal(err)
	}
	u := &unsupported{class: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		switch {
		case strings.HasPrefix(line, "#"), line == "\n":
			u.head += line
		case len(fields) == 3 && (strings.Contains(u.head, "\n#   "+fields[0]+" ") || *updateSuites):
			u.class[fields[1]+"\t"+fields[2]] = fields[0]
		default:
			t.Errorf("%s: %q is not \"class<tab>file<tab>case\" with a class that the head explains", unsupportedGolden, line)
		}
	}
	return u
}

func (u *unsupported) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	b.WriteString(u.head)
	keys := slices.SortedFunc(maps.Keys(u.class), func(a, b string) int {
		return strings.Compare(u.class[a]+"\t"+a, u.class[b]+"\t"+b)
	})
	for _, key := range keys {
		b.WriteString(u.class[key] + "\t" + key + "\n")
	}
	if err := os.WriteFile(unsupportedGolden, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
