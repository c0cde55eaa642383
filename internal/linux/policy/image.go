package policy

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// ImageRootOptions are the parameters of an image's root.
type ImageRootOptions struct {
	// Dir is the image's root on the host. "" if its mount comes with the plan, as the first and
	// only descriptor.
	Dir string
	// Disk and Inodes bound everything that programs write or change. Disk is in bytes and rounded
	// up to a page. sandbar.Unlimited removes a bound; 0 is an error.
	Disk, Inodes int64
	// Hostname is the sandbox's host name.
	Hostname string
	// MachineID is the content of /etc/machine-id, 32 hexadecimal digits. It must be new for each
	// sandbox. "" keeps the image's own file.
	MachineID string
	// BootID is as in HostRootOptions.
	BootID string
	// Omit are parts that a container runtime builds.
	Omit Parts
	// Files is as in HostRootOptions.
	Files Files
}

// Directories of the tree below the new root, before the overlay becomes the root. The agent knows
// lower, upper and work by these names (wire.MountOverlay).
const (
	imageLower = "/lower"
	imageUpper = "/upper"
	imageWork  = "/work"
	imageRoot  = "/root"

	// imageReservedInodes are the inodes in use before a program runs: the top of the tmpfs; lower,
	// upper, work, the directory that the kernel creates in work, root, tmp and shm; the entries of
	// imageUpperDirs and imageFiles; mtab; the empty file of the masks; the boot id; and
	// overlayfs's extended attributes.
	imageReservedInodes = 8 + 6 + 4 + 1 + 1 + 1 + 1
	// imageProc is the mount option that keeps programs from reading the agent's entries in /proc:
	// the agent runs as the same user. They still see all entries of other programs.
	imageProc = "hidepid=1"

	// imageReservedBytes is one page for each non-empty file of imageFiles, and one for the boot
	// id.
	imageReservedBytes = 4 * 4096
)

// imageUpperDirs are directories that a sandbox needs, whatever the image has at these paths. In
// the upper directory each hides a file or link of the same name, and merges with a directory of
// the same name.
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

// ImageRoot returns the steps that build a sandbox's root from an image: the read-only image; over
// it a private and bounded layer that takes every change; /tmp and /dev/shm within the same bounds;
// /dev and /proc as in the image "host"; and nothing of the host. Programs are 0:0 there and own
// all files, without any capability.
//
// No step resolves a path in the image: mount points and files are created in the upper directory
// before the overlay is mounted.
//
// An unset field is an Invalid error.
func ImageRoot(o ImageRootOptions) ([]wire.Mount, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := plan{o: HostRootOptions{Disk: o.Disk, Inodes: o.Inodes, Hostname: o.Hostname, MachineID: o.MachineID, BootID: o.BootID, Omit: o.Omit, Files: o.Files}}
	p.boundedTmpfs("/", imageReservedBytes, imageReservedInodes)
	p.keep(imageLower + " " + imageWork + " " + imageRoot)
	p.imageLower(o.Dir)
	p.imageUpper()
	p.dir(imageRoot, 0o755, false)
	p.dir("/tmp", 0o1777, false)
	p.dir("/shm", 0o1777, false)
	p.restore(imageReplaced(), 0, 0)
	p.add(wire.Mount{Kind: wire.MountOverlay, Source: "/", Target: imageRoot, Flags: writable})
	p.bindInner("/tmp", imageRoot+"/tmp", writable)
	p.prefix = imageRoot
	// A mount point cannot be removed, so programs always have their home.
	p.bindInner(sandbar.DefaultDir, sandbar.DefaultDir, writable)
	p.add(wire.Mount{Kind: wire.MountTmpfs, Target: imageRoot + "/dev", Flags: wire.MountNoSuid | wire.MountNoExec,
		Size: skeletonSize, Inodes: skeletonInodes, Mode: 0o755})
	p.devices()
	p.prefix = ""
	p.bindInner("/shm", imageRoot+"/dev/shm", writable)
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
	return checkRoot(bad, o.Disk, o.Inodes, o.Hostname, o.MachineID, o.BootID)
}

// imageLower mounts the image, read-only, at a path that only overlayfs uses. dir "" is the first
// of the mounts that come with the plan.
func (p *plan) imageLower(dir string) {
	p.add(wire.Mount{Kind: wire.MountAttach, Source: dir, Target: imageLower, Flags: readOnly})
}

// imageUpper creates the upper directory.
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

// imageFiles are the files of etcFiles that replace those of an image. Users and name services stay
// the image's own.
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

// imageReplaced are the files of imageFiles that restored files replace: all that do not identify a
// sandbox.
func imageReplaced() string {
	return imageUpper + "/etc/hosts " + imageUpper + "/etc/hostname " + imageUpper + "/etc/resolv.conf " + imageUpper + "/etc/mtab"
}
