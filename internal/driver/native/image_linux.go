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

// The root of a sandbox with an image is an overlay: the image is the lower layer, and a private
// bounded tmpfs the upper one. The agent mounts it, in the sandbox's user namespace.
//
// Programs have uid and gid 0 there, because the programs of images expect it: package managers
// write to /usr and /etc and check their uid. The uid gives no capability, because the bounding set
// is empty. On the host it is an id of the sandbox's range, or the daemon's user. Programs own all
// files of the image; if the daemon is root, by an idmapped mount (spawn.Child.IDMappedMount).

// imageUID is the uid and gid of programs in a sandbox with an image.
const imageUID = 0

// openImage opens a sandbox's image. nil means the image "host".
func (d *Driver) openImage(ctx context.Context, name string) (*driver.Image, error) {
	image, err := d.OpenImage(ctx, name)
	if image != nil && d.IDs.Ranged && d.mode != agent.ModeSocket {
		image.Close()
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image", Fix: "use the image \"host\"",
			Message: "the native driver cannot use this image: its root is passed as a descriptor, which this connection to the agent cannot carry"}
	}
	return image, err
}

// imageSetup sets the mounts, ids and environment of a plan for a sandbox with an image.
func (d *Driver) imageSetup(setup *wire.Setup, image *driver.Image, s sandbar.Spec, files policy.Files) error {
	o := policy.ImageRootOptions{
		Dir: image.Dir, Disk: s.Limits.Disk, Inodes: s.Limits.Inodes,
		Hostname: hostname, MachineID: hostenv.NewMachineID(), BootID: hostenv.NewBootID(), Files: files,
	}
	if d.IDs.Ranged {
		o.Dir = "" // the agent gets the image's mount as a descriptor
	}
	mounts, err := policy.ImageRoot(o)
	if err != nil {
		return err
	}
	setup.Mounts, setup.Landlock = mounts, policy.RootLandlock()
	setup.UID, setup.GID = imageUID, imageUID
	setup.Env = hostenv.Environment("root", s.Env) // not the variables of the image's configuration
	return nil
}
