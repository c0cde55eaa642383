package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// firstUID is where the search for a free user number begins: above what
// distributions give to people and services.
const firstUID = 54321

// sourceOnly are packages whose tests are about the sources or the machinery of
// tests; who runs them makes no difference.
var sourceOnly = []string{"internal/test/arch", "internal/test/testenv/runner"}

// runAsUser runs the tests as a user without rights. The caller is root.
func runAsUser(ctx context.Context, o options, root string, golden []allowance, w io.Writer) (counts, error) {
	module, err := goOutput(ctx, root, "list", "-m")
	if err != nil {
		return counts{}, err
	}
	h, err := newHome(ctx)
	if err != nil {
		return counts{}, err
	}
	defer h.remove()
	packages, err := h.prepare(ctx, o, root)
	if err != nil {
		return counts{}, err
	}
	t := newTally(w, strings.TrimSpace(module))
	for _, p := range packages {
		if err := h.test(ctx, o, t, p); err != nil {
			return t.now, err
		}
		for _, left := range h.survivors(5 * time.Second) {
			t.problem("the tests of %s left a process running: %s", p.dir, left)
		}
	}
	err = t.again(ctx, o, func(ctx context.Context, o options, t *tally, pkg string) error {
		i := slices.IndexFunc(packages, func(p testedPackage) bool { return p.path == pkg })
		err := h.test(ctx, o, t, packages[i])
		for _, left := range h.survivors(5 * time.Second) {
			t.problem("the tests of %s left a process running: %s", packages[i].dir, left)
		}
		return err
	})
	if err != nil {
		return t.now, err
	}
	unmet, err := h.command(ctx, h.path("runner"), "-check", "all").Output()
	if err != nil {
		return t.now, fmt.Errorf("looking at the requirements again: %w", err)
	}
	f := readFacts()
	f.root = false
	return t.conclude(h.path("skips"), golden, f, parseUnmet(string(unmet)))
}

// home is a directory with all that the ordinary user's tests need:
//
//	runner    this program
//	src       the module's files, without what Git and make keep
//	cache     the fetched tools and built commands
//	test      the compiled tests
//	home, tmp, run, skips   the user's own
//
// All but the last line belongs to root: a test that writes beside its source
// fails here.
type home struct {
	dir  string
	uid  uint32
	lock *os.File // held while this program lives; then the directory is stale
}

const homePrefix = "sandbar-user-"

// newHome makes the directory at a place that the user can reach and where
// programs may be executed, which is tried out.
func newHome(ctx context.Context) (*home, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	uid, err := freeUID()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, base := range slices.Compact([]string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"}) {
		removeStale(base)
		h, err := makeHome(base, uid)
		if err == nil {
			err = errors.Join(copyFile(self, h.path("runner"), 0o755), h.command(ctx, h.path("runner"), "-check", "Linux").Run())
			if err == nil {
				return h, nil
			}
			h.remove()
		}
		errs = append(errs, fmt.Errorf("%s: %w", base, err))
	}
	return nil, fmt.Errorf("no directory from which user %d can run programs: %w", uid, errors.Join(errs...))
}

func makeHome(base string, uid uint32) (*home, error) {
	dir, err := os.MkdirTemp(base, homePrefix)
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, uid: uid}
	h.lock, err = os.Create(h.path("lock"))
	if err == nil {
		err = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	err = errors.Join(err, os.Chmod(dir, 0o755))
	for _, own := range []string{"home", "tmp", "run", "skips"} {
		err = errors.Join(err, os.Mkdir(h.path(own), 0o700), os.Chown(h.path(own), int(uid), int(uid)))
	}
	if err != nil {
		h.remove()
		return nil, err
	}
	return h, nil
}

// removeStale removes what a runner that was killed left behind.
func removeStale(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, homePrefix+"*"))
	for _, dir := range dirs {
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		lock.Close()
	}
}

func (h *home) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

func (h *home) remove() {
	os.RemoveAll(h.dir)
	if h.lock != nil {
		h.lock.Close()
	}
}

// command is a program that runs as the user, with an environment of its own.
func (h *home) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
		"USER=user" + strconv.Itoa(int(h.uid)),
		"HOME=" + h.path("home"),
		"TMPDIR=" + h.path("tmp"),
		"XDG_RUNTIME_DIR=" + h.path("run"),
		"TESTENV_CACHE=" + h.path("cache"),
		"TESTENV_SKIPS=" + h.path("skips"),
		"TESTENV_PREBUILT=1",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.uid, Gid: h.uid}}
	return cmd
}

// testedPackage is a package whose tests are run.
type testedPackage struct {
	path   string // import path
	dir    string // below the module's root
	binary string
}

// prepare fills the directory and returns the packages to test.
func (h *home) prepare(ctx context.Context, o options, root string) ([]testedPackage, error) {
	if err := copyTree(root, h.path("src"), skipSource); err != nil {
		return nil, err
	}
	for _, tools := range []string{"npm", "py", "koyeb", "iii-npm", "iii-py", "images", "v86", "wheels"} {
		from := filepath.Join(testenv.Cache(), tools)
		if _, err := os.Stat(from); err != nil {
			continue // the requirement is not met, for this user as for root
		}
		if err := copyTree(from, h.path("cache", tools), skipTools); err != nil {
			return nil, err
		}
	}
	for _, c := range testenv.Commands() {
		if _, err := os.Stat(filepath.Join(root, c.Package)); err != nil {
			continue
		}
		if _, err := c.Make(h.path("cache")); err != nil {
			return nil, err
		}
	}
	packages, err := h.list(ctx, o, root)
	if err != nil {
		return nil, err
	}
	return packages, h.compile(ctx, o, root, packages)
}

// list returns the packages that have tests for an ordinary user.
func (h *home) list(ctx context.Context, o options, root string) ([]testedPackage, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	out, err := goOutput(ctx, root, append([]string{"list", "-f", format}, o.patterns...)...)
	if err != nil {
		return nil, err
	}
	var packages []testedPackage
	for line := range strings.Lines(out) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		dir, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		if slices.Contains(sourceOnly, dir) {
			continue
		}
		binary := h.path("test", strings.ReplaceAll(dir, "/", "-")+".test")
		packages = append(packages, testedPackage{path, dir, binary})
	}
	return packages, nil
}

// compile makes the test binaries, two at a time. A package that does not
// compile is told of when its turn to run comes.
func (h *home) compile(ctx context.Context, o options, root string, packages []testedPackage) error {
	if err := os.MkdirAll(h.path("test"), 0o755); err != nil {
		return err
	}
	args := []string{"test", "-c", "-vet=off"}
	if o.race {
		args = append(args, "-race")
	}
	errs := make(chan error, len(packages))
	places := make(chan struct{}, 2)
	for _, p := range packages {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			cmd := exec.CommandContext(ctx, "go", append(args, "-o", p.binary, p.path)...)
			cmd.Dir = root
			cmd.Env = goEnv(o)
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("compiling the tests of %s: %w\n%s", p.dir, err, out)
			}
			errs <- err
		}()
	}
	var all error
	for range packages {
		all = errors.Join(all, <-errs)
	}
	return all
}

// test runs one package's tests as the user and adds their events to t.
func (h *home) test(ctx context.Context, o options, t *tally, p testedPackage) error {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + o.timeout.String()}
	if o.only != "" {
		args = append(args, "-test.run="+o.only)
	}
	// The binary ends itself at its timeout; this is for one that cannot.
	ctx, cancel := context.WithTimeout(ctx, o.timeout+time.Minute)
	defer cancel()
	tests := h.command(ctx, p.binary, args...)
	tests.Dir = h.path("src", p.dir)
	tests.WaitDelay = 10 * time.Second
	killGroup(tests)
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", p.path)

	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	convert.Stdin = r
	tests.Stdout, tests.Stderr = w, w
	err = tests.Start()
	w.Close()
	if err != nil {
		return err
	}
	before := t.now.failed
	followErr := t.follow(ctx, convert)
	if err := tests.Wait(); err != nil && t.now.failed == before {
		// The converter says nothing about a package whose process died.
		t.add(event{Action: "output", Package: p.path, Output: err.Error() + "\n"})
		t.add(event{Action: "fail", Package: p.path})
	}
	if followErr != nil {
		return fmt.Errorf("the tests of %s: %w", p.dir, followErr)
	}
	return nil
}

// freeUID finds a user number that has neither a name nor a process, so that
// nobody is disturbed and whatever runs under it later is ours.
func freeUID() (uint32, error) {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return 0, err
	}
	for uid := uint32(firstUID); uid < firstUID+1000; uid++ {
		named := bytes.Contains(passwd, fmt.Appendf(nil, ":%d:", uid))
		if !named && len(processesOf(uid)) == 0 {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all user numbers from %d to %d are taken", firstUID, firstUID+999)
}

// survivors are the user's processes that outlive the tests by more than the
// patience given. They are killed.
func (h *home) survivors(patience time.Duration) []string {
	left := processesOf(h.uid)
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); left = processesOf(h.uid) {
		time.Sleep(100 * time.Millisecond)
	}
	var names []string
	for pid, name := range left {
		// Its arguments say more than its name does.
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		names = append(names, fmt.Sprintf("%d (%s) %q", pid, name, strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")))
		syscall.Kill(pid, syscall.SIGKILL)
	}
	slices.Sort(names)
	return names
}

// processesOf lists a user's processes, by number, with their names. Zombies
// are not processes any more.
func processesOf(uid uint32) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue // it has ended meanwhile
		}
		status := parseStatus(string(b))
		if f := strings.Fields(status["Uid"]); len(f) > 0 && f[0] == strconv.Itoa(int(uid)) && !strings.HasPrefix(status["State"], "Z") {
			found[pid] = status["Name"]
		}
	}
	return found
}

func parseStatus(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

// skipSource leaves out what is no source: Git's files and the output of make.
func skipSource(rel string) bool {
	return rel == ".git" || rel == ".cache" || rel == "bin"
}

// skipTools leaves out what no test uses: what an image was made of, and what
// root's tests have compiled.
func skipTools(rel string) bool {
	return rel == "parts" || filepath.Dir(rel) == "machines" && filepath.Ext(rel) != ".snapshot"
}

// copyTree copies directories, files and links, readable by everyone.
func copyTree(from, to string, skip func(rel string) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case skip != nil && skip(rel):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			return copyFile(path, target, 0o644|info.Mode()&0o111)
		}
		return nil
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(mode), dst.Close())
}
