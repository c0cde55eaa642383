package native

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/outfit"
	"github.com/sandbar-dev/sandbar/internal/policy"
	"github.com/sandbar-dev/sandbar/internal/spawn"
)

// A sandbox of an image has the image under an overlay whose upper layer is its
// own bounded file system in memory. The overlay is mounted by the agent, with
// the rights of the sandbox's user namespace and not with the host's.
//
// Its programs are 0:0, because what images are made of expects that: package
// managers write /usr and /etc and ask who they are. It is a number and no more:
// the bounding set is empty, and on the host they are a user who exists nowhere
// else, or the daemon's own. All of the image belongs to them; where the daemon
// is root, by a mount of the image that shifts root's ids to theirs.

// imageUID is the user, and the group, of programs in a sandbox of an image.
const imageUID = 0

// openImage finds the root of a sandbox: nil for the host's own programs.
func (d *Driver) openImage(ctx context.Context, name string) (*driver.Image, error) {
	if name == "" || name == sandbar.ImageHost {
		return nil, nil
	}
	if d.images == nil {
		return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
			Message: "image " + sandbar.Quote(name, 100) + " is not known; there is the image \"" + sandbar.ImageHost + "\"",
			Fix:     "use the image \"" + sandbar.ImageHost + "\""}
	}
	image, err := d.images.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if image.Dir == "" {
		image.Close()
		return nil, nil
	}
	if err := d.refuseImage(); err != nil {
		image.Close()
		return nil, err
	}
	return &image, nil
}

// imageNote says what images lack here, "" if nothing.
func imageNote() string {
	if kernelAtLeast(6, 6) {
		return ""
	}
	return "sandboxes can be made of the image \"host\" only: others need Linux 6.6, where files in memory can carry the notes of overlay file systems"
}

func (d *Driver) refuseImage() error {
	lack := func(what, fix string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "the native driver cannot use this image: " + what, Fix: fix}
	}
	switch {
	case imageNote() != "":
		return lack("it needs Linux 6.6, where files in memory can carry the notes of overlay file systems", "use the image \"host\", or a newer kernel")
	case d.ids.Ranged && d.mode != agent.ModeSocket:
		return lack("its root is passed as a descriptor, which this connection to the agent cannot carry", "use the image \"host\"")
	}
	return nil
}

// imageSetup is the part of the plan that depends on the image: the tree, whose
// it is, and who runs in it.
func (d *Driver) imageSetup(setup *wire.Setup, image *driver.Image, s sandbar.Spec) error {
	o := policy.ImageRootOptions{
		Dir: image.Dir, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		Hostname: hostname, MachineID: outfit.MachineID(),
	}
	if d.ids.Ranged {
		o.Dir = "" // it is passed, see attachable
	}
	mounts, err := policy.ImageRoot(o)
	if err != nil {
		return err
	}
	setup.Mounts, setup.Landlock = mounts, policy.ImageLandlock()
	setup.UID, setup.GID = imageUID, imageUID
	setup.Env = outfit.Environment("root", s.Env) // what the image itself sets is for whoever asks for it to apply
	return nil
}

// attachable returns a mount of a directory that is nowhere yet: read-only, and
// with what belongs to the host's root belonging to the sandbox's: the agent's
// user namespace says what that is.
func attachable(dir string, agent *spawn.Child) (fd int, err error) {
	ns, err := agent.Open("ns/user")
	if err != nil {
		return -1, sandbar.Errorf(sandbar.Internal, "opening the agent's user namespace: %w", err)
	}
	defer unix.Close(ns)
	fd, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, sandbar.Errorf(sandbar.Internal, "opening the root of an image: %w", err)
	}
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns),
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return -1, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Err: err,
			Message: "the file system that holds the image cannot show it under other ids",
			Fix:     "keep images (images.dir) on ext4, xfs, btrfs or tmpfs"}
	}
	return fd, nil
}
