package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// An image's root is hostile: a program's tree as much as any, only made
// earlier. Until the pivot the host's tree can be reached, and a link in the
// image would lead there. So nothing is ever resolved through the image here:
// what the sandbox needs in it is put into the upper directory, which is ours,
// before the overlay is mounted, and hides what the image has in that place.

// hold takes hold of what the plan attaches before its first step: a directory
// of the host may lie where the new root is built, and be hidden by it.
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

// attach puts a mount that is nowhere yet at target.
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

// overlay mounts parts/upper over parts/lower at target. It keeps its notes in
// user attributes, the only ones that a user namespace may write.
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

// userAttributes fails where a directory cannot have user attributes. Overlay
// would be mounted all the same, and a directory that replaces one of the image
// would fail later, in the middle of somebody's program.
func checkUserXattrs(dir string) error {
	const name = "user.sandbar"
	if err := unix.Setxattr(dir, name, nil, 0); err != nil {
		return err
	}
	return unix.Removexattr(dir, name)
}
