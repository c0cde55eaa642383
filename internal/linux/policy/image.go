package policy

import (
	"strconv"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// ImageRootOptions are what the root of an image depends on.
type ImageRootOptions struct {
	// Dir is the image's root on the host. "" when it comes
	// with the plan, as its first and only descriptor.
	Dir string
	// Disk and Inodes bound all that programs write or change, anywhere. Disk
	// is in bytes and is rounded up to a page; sandbar.Unlimited lifts a bound;
	// 0 is an error.
	Disk, Inodes int64
	// Hostname is the sandbox's own.
	Hostname string
	// MachineID is 32 hexadecimal digits for /etc/machine-id; "" means that the
	// image's own is seen. It must be fresh for each sandbox.
	MachineID string
	// BootID is as in HostRootOptions.
	BootID string
	// Without are parts that somebody else makes.
	Omit Parts
}

// The places in the tree that is built, before the overlay becomes the root.
// The agent knows lower, upper and work by these names (wire.MountOverlay).
const (
	imageLower = "/lower"
	imageUpper = "/upper"
	imageWork  = "/work"
	imageRoot  = "/root"

	// imageOwn is the inodes taken before a program runs: the top of the file
	// system; lower, upper, work, the directory that the kernel makes in work,
	// root, tmp and shm; what imageUpperDirs and imageFiles list; mtab; and the
	// empty file that masks show; the boot id; and the attributes in which overlay
	// keeps notes.
	imageReservedInodes = 8 + 6 + 4 + 1 + 1 + 1 + 1
	// imageProc keeps programs from what /proc tells of the agent, which is the
	// same user as they are. Of other programs they see everything.
	imageProc = "hidepid=1"

	// imageOwnBytes is a page for each of imageFiles that is not empty, and for the
	// boot id.
	imageReservedBytes = 4 * 4096
)

// imageUpperDirs are directories that the sandbox needs to find, whatever the
// image has in their place. In the upper directory they hide a file or a link
// of that name and are joined with a directory of that name.
func imageUpperDirs() []row {
	return []row{
		{"/dev", "the devices"},
		{"/proc", "the sandbox's processes"},
		{"/tmp", "a file system of its own: programs write there most"},
		{"/etc", "the sandbox's name and addresses"},
		{"/home", "holds the next"},
		{sandbar.DefaultDir, "where programs start"},
	}
}

// ImageRoot returns the steps that build the root of a sandbox out of an image:
// the image, read-only, under a private and bounded layer that takes every
// change; /tmp and /dev/shm within the same bounds; /dev and /proc as in the
// image "host"; and nothing of the host. Programs are 0:0 there, who owns all
// of it, without any capability.
//
// No step resolves a name in the image: all that is mounted on or written is in
// the upper directory before the overlay is mounted.
//
// It is an Invalid error to leave a field unset.
func ImageRoot(o ImageRootOptions) ([]wire.Mount, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := plan{o: HostRootOptions{Disk: o.Disk, Inodes: o.Inodes, Hostname: o.Hostname, MachineID: o.MachineID, BootID: o.BootID, Omit: o.Omit}}
	p.boundedTmpfs("/", imageReservedBytes, imageReservedInodes)
	p.imageLower(o.Dir)
	p.imageUpper()
	p.add(wire.Mount{Kind: wire.MountOverlay, Source: "/", Target: imageRoot, Flags: writable})
	p.imagePart("/tmp", "/tmp")
	p.prefix = imageRoot
	// A mount of its own cannot be removed, and programs always have a place to
	// start from.
	p.bindInner(sandbar.DefaultDir, sandbar.DefaultDir, writable)
	p.add(wire.Mount{Kind: wire.MountTmpfs, Target: imageRoot + "/dev", Flags: wire.MountNoSuid | wire.MountNoExec,
		Size: skeletonSize, Inodes: skeletonInodes, Mode: 0o755})
	p.devices()
	p.prefix = ""
	p.imagePart("/shm", "/dev/shm")
	p.prefix = imageRoot
	p.proc(imageProc)
	p.add(wire.Mount{Kind: wire.MountSetFlags, Target: imageRoot + "/dev", Flags: sealed})
	p.add(wire.Mount{Kind: wire.MountRoot, Target: imageRoot})
	return p.steps, nil
}

func (o ImageRootOptions) check() error {
	bad := func(field, what string) error {
		return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: "the root of an image: " + what}
	}
	switch {
	case o.Disk == 0 || o.Disk < sandbar.Unlimited:
		return bad("disk", strconv.FormatInt(o.Disk, 10)+" bytes; give a number over 0, or -1 for no bound")
	case o.Inodes == 0 || o.Inodes < sandbar.Unlimited:
		return bad("inodes", strconv.FormatInt(o.Inodes, 10)+" inodes; give a number over 0, or -1 for no bound")
	case !hostnameOK(o.Hostname):
		return bad("hostname", sandbar.Quote(o.Hostname, 80)+"; give 1 to 63 of a-z, A-Z, 0-9 and -")
	case o.MachineID != "" && !machineIDOK(o.MachineID):
		return bad("machine_id", "it must be 32 hexadecimal digits in lower case")
	case o.BootID != "" && !bootIDOK(o.BootID):
		return bad("boot_id", "it must be a UUID in lower case")
	}
	return nil
}

// imageLower shows the image, read-only, where only the overlay looks. dir "" is
// the first of the mounts that come with the plan.
func (p *plan) imageLower(dir string) {
	p.add(wire.Mount{Kind: wire.MountAttach, Source: dir, Target: imageLower, Flags: readOnly})
}

// imageUpper makes the private layer.
func (p *plan) imageUpper() {
	p.dir(imageWork, 0o700, false)
	p.dir(imageUpper, 0o755, false)
	p.prefix = imageUpper
	for _, r := range imageUpperDirs() {
		p.dir(r.path, 0o755, false)
	}
	for _, f := range imageFiles(p.o) {
		p.file(f.path, f.text)
	}
	p.link("../proc/self/mounts", "/etc/mtab")
	p.prefix = ""
}

// imageFiles are those of etcFiles that are the sandbox's own in an image too.
// Who its users are, and where its names come from, is the image's affair.
func imageFiles(o HostRootOptions) []textFile {
	var files []textFile
	for _, f := range etcFiles(o) {
		switch f.path {
		case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id":
			files = append(files, f)
		}
	}
	return files
}

// imagePart shows a directory of the bounded file system itself.
func (p *plan) imagePart(part, target string) {
	p.dir(part, 0o1777, false)
	p.bindInner(part, imageRoot+target, writable)
}
