package slot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A slot builds once what no program can change: /etc, except the machine id, and /dev, except
// /dev/pts and /dev/shm. Both are read-only mounts. A sandbox binds them, with all mounts below,
// and so it does with the directories of the host.
//
// Besides them, the slot's root has only a directory where the roots of sandboxes are built. So the
// host's mounts are not copied for each sandbox, and the sandbox needs no pivot_root(2), which
// looks at every thread of the host.

// Paths in the slot's root.
const (
	partsDir = "/parts" // has the prepared directories
	hostDir  = "/host"  // below partsDir: has directories and files of the host
	procDir  = "/proc"
)

// splitPlan divides a plan into the steps that the slot takes once and those of each sandbox.
func splitPlan(plan []wire.Mount) (once, each []wire.Mount) {
	within := func(target, dir string) bool { return target == dir || strings.HasPrefix(target, dir+"/") }
	bound := map[string]bool{}
	var later []wire.Mount
	for _, m := range plan {
		dir := ""
		switch {
		case m.Kind == wire.MountMkdir && m.Target == "/dev/shm":
			continue // made below
		case m.Kind == wire.MountDevpts, within(m.Target, "/dev/shm"):
			each = append(each, m)
			continue
		case within(m.Target, "/etc"):
			dir = "/etc"
		case within(m.Target, "/dev"):
			dir = "/dev"
		case m.Kind == wire.MountBind:
			part := wire.Mount{Kind: mountPart, Source: hostDir + m.Target, Target: m.Target}
			info, err := os.Stat(m.Source)
			if err == nil && !info.IsDir() {
				part.Mode = unix.S_IFREG
			}
			if err == nil {
				each = append(each, part)
			}
			m.Target = part.Source
			once = append(once, m)
			continue
		default:
			each = append(each, m)
			continue
		}
		if !bound[dir] {
			bound[dir] = true
			each = append(each, wire.Mount{Kind: mountPart, Source: dir, Target: dir})
		}
		if m.Target == machineID {
			each = append(each, wire.Mount{Kind: wire.MountReplaceFile, Source: m.Source, Target: m.Target, Mode: m.Mode})
			m.Source = ""
		}
		if m.Kind == wire.MountSetFlags {
			later = append(later, m)
			continue
		}
		once = append(once, m)
	}
	if len(each) > 0 && each[0].Kind == wire.MountTmpfs {
		countInodes(&each[0], once)
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} { // mount points
		once = append(once, wire.Mount{Kind: wire.MountMkdir, Target: dir, Mode: 0o755})
	}
	return append(once, later...), each
}

// mountPart binds Source, a prepared directory, or a file if Mode is S_IFREG. It is a step of this
// package only.
const mountPart wire.MountKind = 255

// countInodes takes from the bounds of the sandbox's file system what the prepared directories
// save, and adds the file that covers the machine id. So programs have the same bounds as in a
// sandbox with an agent.
func countInodes(m *wire.Mount, once []wire.Mount) {
	saved := int64(2) // the mount points of /dev/pts and /dev/shm
	for _, x := range once {
		if strings.HasPrefix(x.Target, "/dev/") {
			saved++
		}
		if x.Target == machineID {
			saved--
			m.Size += 4096
		}
	}
	m.Inodes -= saved
}

// machineID is a file of /etc that is new for each sandbox.
const machineID = "/etc/machine-id"
