package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// currentUserKind returns the kind of user that this process runs as.
func currentUserKind() escapesuite.As {
	switch {
	case os.Geteuid() == 0 && spawn.DetectIDs().Ranged:
		return escapesuite.Root
	case os.Geteuid() == 0:
		return escapesuite.RootOneID
	}
	if m, err := cgroup.Detect("escape-" + strconv.Itoa(os.Getpid())); err == nil {
		defer m.Close()
		if m.Caps().Any() {
			return escapesuite.UserCgroup
		}
	}
	return escapesuite.User
}

const (
	roleDirPrefix = "sandbar-role-" // of a role user's directory
	// firstFreeUID is the start of the search for an unused uid, above the uids that
	// distributions assign to users and services.
	firstFreeUID = 54321
	roleImage    = "escape-suite" // the image's name in a role user's store
)

// roleUser runs this program as another user, with private directories and, if the role
// has one, a delegated cgroup. Only root can create one.
type roleUser struct {
	kind    escapesuite.As
	dir     string
	binary  string
	uid     int
	environ []string
	cgroups *cgroup.Manager
	group   *cgroup.Group
}

// newRoleUser creates the directories and the cgroup of a role's user. Its error is
// Unsupported if the role is not possible on this host.
func (a *app) newRoleUser(as escapesuite.As) (*roleUser, error) {
	if currentUserKind() != escapesuite.Root {
		return nil, sandbar.Errorf(sandbar.Unsupported, "only root with a range of ids for sandboxes can run another role; this is %s", currentUserKind())
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &roleUser{kind: as}
	if as != escapesuite.RootOneID {
		if p.uid, err = freeUID(); err != nil {
			return nil, err
		}
	}
	for _, base := range slices.Compact([]string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"}) {
		if err = p.makeDirs(base, self); err == nil {
			break
		}
		p.remove()
	}
	if err == nil && as == escapesuite.UserCgroup {
		err = p.delegate()
	}
	if err != nil {
		p.remove()
		return nil, sandbar.Errorf(sandbar.Unsupported, "preparing the role %s: %w", as, err)
	}
	return p, nil
}

// makeDirs creates the user's directories below base, and checks that the user can execute
// a program there.
func (p *roleUser) makeDirs(base, self string) (err error) {
	if p.dir, err = os.MkdirTemp(base, roleDirPrefix); err != nil {
		return err
	}
	if err := os.Chmod(p.dir, 0o711); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(p.dir, name) }
	for _, own := range []string{"home", "tmp", "run", "state"} {
		if err := errors.Join(os.Mkdir(path(own), 0o700), os.Chown(path(own), p.uid, p.uid)); err != nil {
			return err
		}
	}
	p.binary = path("sandbar")
	p.environ = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + path("home"), "TMPDIR=" + path("tmp"),
		"XDG_RUNTIME_DIR=" + path("run"), "SANDBAR_CONFIG=/dev/null",
		"SANDBAR_RUNTIME_DIR=" + filepath.Join(path("run"), "sandbar"), "SANDBAR_STATE_DIR=" + filepath.Join(path("state"), "sandbar")}
	if err := copyProgram(self, p.binary); err != nil {
		return err
	}
	if out, err := p.command(context.Background(), "version").CombinedOutput(); err != nil {
		return fmt.Errorf("user %d cannot run a program in %s: %w: %.200s", p.uid, base, err, out)
	}
	return nil
}

func copyProgram(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(0o755), dst.Close())
}

// delegate creates a cgroup and delegates it to the user, like systemd's Delegate=yes
// (cgroups(7), "Cgroups v2 delegation").
func (p *roleUser) delegate() (err error) {
	if p.cgroups, err = cgroup.Detect("escape-" + strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if p.group, err = p.cgroups.Create("role", sandbar.Limits{}); err != nil {
		return err
	}
	for _, dir := range p.group.Dirs() {
		// The files of /sys/kernel/cgroup/delegate, and tasks of version 1.
		for _, name := range []string{".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "tasks"} {
			if err := os.Chown(filepath.Join(dir, name), p.uid, p.uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// command returns a command that runs this program as the user. The child receives SIGKILL
// when the thread that started it exits (PR_SET_PDEATHSIG(2const)).
func (p *roleUser) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Dir, cmd.Env = filepath.Join(p.dir, "home"), p.environ
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.kind == escapesuite.RootOneID {
		own := []syscall.SysProcIDMap{{Size: 1}}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = own, own
	} else {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}
	}
	return cmd
}

// run runs this program as the user, in its cgroup.
func (p *roleUser) run(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error {
	runtime.LockOSThread() // see command: the thread's exit would kill the child
	defer runtime.UnlockOSThread()
	cmd := p.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	if p.group != nil {
		joinFiles, err := p.group.JoinFiles()
		if err != nil {
			return err
		}
		var enter strings.Builder
		for i, d := range joinFiles {
			defer d.Close()
			fmt.Fprintf(&enter, "echo 0 >&%d || exit 1; exec %d>&-; ", i+3, i+3)
		}
		cmd.ExtraFiles, cmd.Path = joinFiles, "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", enter.String() + `exec "$@"`, "sh"}, cmd.Args...)
	}
	return cmd.Run()
}

// copyImage copies an image of the caller's store into the user's store.
func (p *roleUser) copyImage(ctx context.Context, cfg *config.Config, name string) error {
	img, err := platform.Host(cfg, cfg.Driver, slog.New(slog.DiscardHandler)).Images.Open(ctx, name)
	if err != nil {
		return err
	}
	defer img.Close()
	if img.Dir == "" {
		return sandbar.Errorf(sandbar.NotFound, "the image %s is not installed; it stands for the host's programs", sandbar.Quote(name, 80))
	}
	root, err := os.OpenRoot(img.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		archive := tar.NewWriter(w)
		err := errors.Join(archive.AddFS(root.FS()), archive.Close())
		_ = w.CloseWithError(err)
		packed <- err
	}()
	var errs strings.Builder
	err = p.run(ctx, r, io.Discard, &errs, "images", "import", "-", roleImage)
	_ = r.Close()
	if err = errors.Join(err, <-packed); err != nil {
		return fmt.Errorf("copying the image: %w: %.300s", err, errs.String())
	}
	return nil
}

// remove removes the user's directories and cgroup.
func (p *roleUser) remove() {
	if p.group != nil {
		for _, dir := range p.group.Dirs() {
			removeGroups(dir)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = p.group.Destroy(ctx)
	}
	if p.cgroups != nil {
		_ = p.cgroups.Close()
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	p.dir, p.group, p.cgroups = "", nil, nil
}

// removeGroups removes the groups below dir, the deepest first.
func removeGroups(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			below := filepath.Join(dir, e.Name())
			removeGroups(below)
			_ = os.Remove(below)
		}
	}
}

// freeUID returns a uid that has neither an account nor a process.
func freeUID() (int, error) {
	taken := map[uint32]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.IsDir() {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				taken[st.Uid] = true
			}
		}
	}
	for uid := firstFreeUID; uid < firstFreeUID+1000; uid++ {
		if _, err := user.LookupId(strconv.Itoa(uid)); err != nil && !taken[uint32(uid)] {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all uids from %d to %d are in use", firstFreeUID, firstFreeUID+999)
}
