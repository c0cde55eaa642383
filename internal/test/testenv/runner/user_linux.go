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

// firstUID is the start of the search for unused uids, above the uids that distributions
// assign to users and services.
const firstUID = 54321

// home is the directory for the ordinary users' tests:
//
//	runner    this program
//	src       the module's files, without those of Git and make
//	cache     the fetched tools and built commands
//	test      the compiled tests
//	0, 1, …   a directory for each user: home, tmp, run, skips
//
// Root owns everything but the users' directories, so a test that writes beside its source
// fails. Each lane has its own user, so that a process that outlives its tests can be
// attributed to a package.
type home struct {
	dir    string
	users  []uint32 // by lane
	beside bool     // root's pass runs concurrently
	lock   *os.File // locked while this program runs; an unlocked directory is stale
}

const homePrefix = "sandbar-user-"

// newHome creates the directory where the users can read files and execute programs; it tests
// both.
func newHome(ctx context.Context, users int) (*home, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	uids, err := freeUIDs(users)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, base := range slices.Compact([]string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"}) {
		removeStale(base)
		h, err := makeHome(base, uids)
		if err == nil {
			err = errors.Join(copyFile(self, h.path("runner"), 0o755), h.command(ctx, 0, h.path("runner"), "-check", "Linux").Run())
			if err == nil {
				return h, nil
			}
			h.remove()
		}
		errs = append(errs, fmt.Errorf("%s: %w", base, err))
	}
	return nil, fmt.Errorf("no directory from which user %d can run programs: %w", uids[0], errors.Join(errs...))
}

func makeHome(base string, uids []uint32) (*home, error) {
	dir, err := os.MkdirTemp(base, homePrefix)
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, users: uids}
	h.lock, err = os.Create(h.path("lock"))
	if err == nil {
		err = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Mkdir(h.path("test"), 0o755))
	for lane, uid := range uids {
		err = errors.Join(err, os.Mkdir(h.path(strconv.Itoa(lane)), 0o755))
		for _, own := range []string{"home", "tmp", "run", "skips"} {
			err = errors.Join(err, os.Mkdir(h.own(lane, own), 0o700), os.Chown(h.own(lane, own), int(uid), int(uid)))
		}
	}
	if err != nil {
		h.remove()
		return nil, err
	}
	return h, nil
}

// removeStale removes the directories of killed runners.
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

// own returns the path of a directory of a lane's user.
func (h *home) own(lane int, name string) string { return h.path(strconv.Itoa(lane), name) }

func (h *home) remove() {
	os.RemoveAll(h.dir)
	if h.lock != nil {
		h.lock.Close()
	}
}

// command returns a command that runs as a lane's user, with a clean environment.
func (h *home) command(ctx context.Context, lane int, name string, args ...string) *exec.Cmd {
	beside := ""
	if h.beside {
		beside = "1"
	}
	uid := h.users[lane]
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
		"USER=user" + strconv.Itoa(int(uid)),
		"HOME=" + h.own(lane, "home"),
		"TMPDIR=" + h.own(lane, "tmp"),
		"XDG_RUNTIME_DIR=" + h.own(lane, "run"),
		"TESTENV_CACHE=" + h.path("cache"),
		"TESTENV_SKIPS=" + h.own(lane, "skips"),
		"TESTENV_PREBUILT=1",
		"TESTENV_BESIDE=" + beside,
		"TESTENV_LONG=" + os.Getenv("TESTENV_LONG"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// fill copies the sources, the fetched tools and the built commands into the directory.
func (h *home) fill(root string) error {
	if err := copyTree(root, h.path("src"), skipSource); err != nil {
		return err
	}
	for _, tools := range []string{"npm", "py", "koyeb", "iii-npm", "iii-py", "e2b-npm", "e2b-py", "mcp-npm", "mcp-py", "typescript", "console", "ipython", "images", "v86", "vm", "vm-qemu", "wheels"} {
		from := filepath.Join(testenv.Cache(), tools)
		if _, err := os.Stat(from); err != nil {
			continue // the requirement is not met, for this user as for root
		}
		if err := copyTree(from, h.path("cache", tools), skipTools); err != nil {
			return err
		}
	}
	for _, c := range testenv.Commands() {
		if _, err := os.Stat(filepath.Join(root, c.Package)); err != nil {
			continue
		}
		if _, err := c.Make(h.path("cache")); err != nil {
			return err
		}
	}
	return nil
}

// pass returns the pass of the ordinary users over the suite.
func (h *home) pass(s *suite, golden []allowance, w io.Writer) *pass {
	t := newTally(w, s.module, "an ordinary user")
	return &pass{
		who:   t.who,
		tally: t,
		runs:  dependsOnUser,
		command: func(ctx context.Context, lane int, p *testedPackage, args ...string) *exec.Cmd {
			// Root's tests may have booted machines since.
			if err := testenv.CopyMachines(testenv.Cache(), h.path("cache", "v86", "machines")); err != nil {
				t.problem("copying the machines that root's tests have booted: %v", err)
			}
			cmd := h.command(ctx, lane, p.binary, args...)
			cmd.Dir = h.path("src", p.dir)
			return cmd
		},
		ended: func(lane int, p *testedPackage) {
			for _, left := range h.survivors(lane, 5*time.Second) {
				t.problem("the tests of %s left a process running: %s", p.dir, left)
			}
		},
		conclude: func(ctx context.Context, t *tally) error {
			unmet, err := h.command(ctx, 0, h.path("runner"), "-check", "all").Output()
			if err != nil {
				return fmt.Errorf("checking the requirements again: %w", err)
			}
			f := readFacts()
			f.root = false
			return t.conclude(h.path("*", "skips"), golden, f, parseUnmet(string(unmet)))
		},
	}
}

// freeUIDs returns n uids that have neither an account nor a process, so that a later process
// with such a uid belongs to a test.
func freeUIDs(n int) (uids []uint32, err error) {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil, err
	}
	for uid := uint32(firstUID); uid < firstUID+1000; uid++ {
		named := bytes.Contains(passwd, fmt.Appendf(nil, ":%d:", uid))
		if !named && len(processesOf(uid)) == 0 {
			if uids = append(uids, uid); len(uids) == n {
				return uids, nil
			}
		}
	}
	return nil, fmt.Errorf("of the uids from %d to %d, %d are free and %d are needed", firstUID, firstUID+999, len(uids), n)
}

// survivors kills and returns the processes of a lane's user that outlive the tests by more
// than patience.
func (h *home) survivors(lane int, patience time.Duration) []string {
	uid := h.users[lane]
	left := processesOf(uid)
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); left = processesOf(uid) {
		time.Sleep(100 * time.Millisecond)
	}
	var names []string
	for pid, name := range left {
		// The arguments identify a process better than its name.
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		names = append(names, fmt.Sprintf("%d (%s) %q", pid, name, strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")))
		syscall.Kill(pid, syscall.SIGKILL)
	}
	slices.Sort(names)
	return names
}

// processesOf returns the names of a user's processes by pid, without zombies.
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
			continue // the process has exited
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

// skipSource reports whether a path is not a source: Git's files and the output of make.
func skipSource(rel string) bool {
	return rel == ".git" || rel == ".cache" || rel == "bin"
}

// skipTools reports whether no test uses a path of the cache: the parts of an image, and files
// that root's tests have compiled.
func skipTools(rel string) bool {
	switch rel {
	case "parts", "snapshots", "roots", "initramfs", "lock": // of v86 and vm
		return true
	}
	return filepath.Dir(rel) == "machines" && filepath.Ext(rel) != ".snapshot"
}

// copyTree copies directories, files and symbolic links, and makes them readable for all.
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
