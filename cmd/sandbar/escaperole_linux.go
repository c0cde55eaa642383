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

// callerIs returns the user that this process is, as roles name it.
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

// The prefix of an actor's directory, and where the search for a free user number
// begins: above those that distributions give to people and services.
const (
	roleDirPrefix = "sandbar-role-"
	firstFreeUID  = 54321
	roleImage   = "escape-suite" // of the image in the store of an actor
)

// actor starts this program as another user, with directories and, if it has one, a
// control group of its own. Only root can make one.
type roleUser struct {
	kind      escapesuite.As
	dir     string
	binary  string
	uid     int
	environ []string
	cgroups  *cgroup.Manager
	group   *cgroup.Group
}

// newActor makes what a role's user needs. Unsupported: it cannot be made here.
func (a *app) newRoleUser(as escapesuite.As) (*roleUser, error) {
	if currentUserKind() != escapesuite.Root {
		return nil, sandbar.Errorf(sandbar.Unsupported, "only root, with ids to give to sandboxes, can take on another role, and this is %s", currentUserKind())
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

// settle makes the actor's directories below base, and tries whether the user can
// execute a program there.
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

// delegate makes a control group and gives it to the user, as a service manager
// does for Delegate=yes.
func (p *roleUser) delegate() (err error) {
	if p.cgroups, err = cgroup.Detect("escape-" + strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if p.group, err = p.cgroups.Create("role", sandbar.Limits{}); err != nil {
		return err
	}
	for _, dir := range p.group.Dirs() {
		// What the kernel lists in /sys/kernel/cgroup/delegate, and version 1's tasks.
		for _, name := range []string{".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.oom.group", "tasks"} {
			if err := os.Chown(filepath.Join(dir, name), p.uid, p.uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// command is this program as the actor. It ends with the calling thread.
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

// run runs this program as the actor, in its control group.
func (p *roleUser) run(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error {
	runtime.LockOSThread() // whose end would end the child
	defer runtime.UnlockOSThread()
	cmd := p.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	if p.group != nil {
		doors, err := p.group.JoinFiles()
		if err != nil {
			return err
		}
		var enter strings.Builder
		for i, d := range doors {
			defer d.Close()
			fmt.Fprintf(&enter, "echo 0 >&%d || exit 1; exec %d>&-; ", i+3, i+3)
		}
		cmd.ExtraFiles, cmd.Path = doors, "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", enter.String() + `exec "$@"`, "sh"}, cmd.Args...)
	}
	return cmd.Run()
}

// give puts an image of the caller's store into the actor's own.
func (p *roleUser) copyImage(ctx context.Context, cfg *config.Config, name string) error {
	img, err := platform.Host(cfg, cfg.Driver, slog.New(slog.DiscardHandler)).Images.Open(ctx, name)
	if err != nil {
		return err
	}
	defer img.Close()
	if img.Dir == "" {
		return sandbar.Errorf(sandbar.NotFound, "the image %s is not installed, and stands for the host's programs", sandbar.Quote(name, 80))
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

// remove removes all that was made.
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

// freeUID finds a user number that has neither a name nor a process.
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
	return 0, fmt.Errorf("all user numbers from %d to %d are taken", firstFreeUID, firstFreeUID+999)
}
