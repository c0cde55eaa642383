package agent

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// An image's root is as hostile as a program. Until pivot_root(2) the host's tree is reachable, so
// a symbolic link in the image could lead there. For that reason no path is resolved through the
// image before the pivot. Everything that the sandbox needs inside the image's tree is created in
// the upper directory, which the agent made, before the overlay is mounted; it hides what the image
// has at the same path.

// openSources clones the mounts that the plan attaches (open_tree(2)) before the first step: a
// source directory of the host may lie below Root, where the new root would hide it.
func (b *builder) openSources(plan []wire.Mount) (step string, err error) {
	for i := range plan {
		m := &plan[i]
		if m.Kind != wire.MountAttach || m.Source == "" {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return m.Kind.String() + " " + m.Target, err
		}
		b.sourceMounts[m.Source] = fd
	}
	return "", nil
}

func (b *builder) close() {
	for _, fd := range b.sourceMounts {
		unix.Close(fd)
	}
}

// attach moves a detached mount to target (move_mount(2)).
func (b *builder) attach(m *wire.Mount, target string) error {
	fd, ok := b.sourceMounts[m.Source]
	if m.Source == "" {
		if m.Size < 0 || m.Size >= int64(len(b.receivedMounts)) {
			return unix.EBADF
		}
		fd, ok = b.receivedMounts[m.Size], true
	}
	if !ok {
		return unix.EBADF
	}
	if err := mkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return setMountFlags(target, m.Flags, true)
}

// overlay mounts an overlay of dirs/upper over dirs/lower at target. userxattr makes overlayfs keep
// its metadata in user.* attributes, the only ones that it may write in a user namespace (Linux
// 5.11, overlayfs.rst).
func overlay(parts, target string, flags uint32) error {
	if err := mkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := checkUserXattrs(parts + "/upper"); err != nil {
		return err
	}
	return unix.Mount("overlay", target, "overlay", mountFlags(flags),
		"userxattr,lowerdir="+parts+"/lower,upperdir="+parts+"/upper,workdir="+parts+"/work")
}

// checkUserXattrs fails if the file system has no user.* attributes. Without them the overlay
// mounts all the same, and creating an opaque directory fails later, inside a program.
func checkUserXattrs(dir string) error {
	const name = "user.sandbar"
	if err := unix.Setxattr(dir, name, nil, 0); err != nil {
		return err
	}
	return unix.Removexattr(dir, name)
}

// keepMount clones the mount at target alone. The clone shows the whole tmpfs, also what other
// mounts cover.
func (b *builder) keepMount(m *wire.Mount, target string) (err error) {
	b.keep.skip = map[string]bool{}
	for _, path := range strings.Fields(m.Source) {
		b.keep.skip[path] = true
	}
	b.keep.dir, err = unix.OpenTree(unix.AT_FDCWD, target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	return err
}
