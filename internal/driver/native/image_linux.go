package native

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
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
	image, err := d.OpenImage(ctx, name)
	if image != nil && d.IDs.Ranged && d.mode != agent.ModeSocket {
		image.Close()
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Fix: "use the image \"host\"",
			Message: "the native driver cannot use this image: its root is passed as a descriptor, which this connection to the agent cannot carry"}
	}
	return image, err
}

// imageSetup is the part of the plan that depends on the image: the tree, whose
// it is, and who runs in it.
func (d *Driver) imageSetup(setup *wire.Setup, image *driver.Image, s sandbar.Spec) error {
	o := policy.ImageRootOptions{
		Dir: image.Dir, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		Hostname: hostname, MachineID: hostenv.NewMachineID(), BootID: hostenv.NewBootID(),
	}
	if d.IDs.Ranged {
		o.Dir = "" // it is passed
	}
	mounts, err := policy.ImageRoot(o)
	if err != nil {
		return err
	}
	setup.Mounts, setup.Landlock = mounts, policy.RootLandlock()
	setup.UID, setup.GID = imageUID, imageUID
	setup.Env = hostenv.Environment("root", s.Env) // what the image itself sets is for whoever asks for it to apply
	return nil
}
