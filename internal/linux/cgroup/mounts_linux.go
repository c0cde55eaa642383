package cgroup

import (
	"path"
	"slices"
	"strings"
)

// mount is a mounted cgroup hierarchy, from a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	version     int
	root        string   // the group that is visible at dir
	dir         string   // mount point
	readOnly    bool     // of the mount, or of the file system
	controllers []string // version 1 only
}

// parseMounts returns the mounted hierarchies in mount order.
func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		// id, parent, device, root, directory, options, optional fields… "-", type, source, options
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		m := mount{root: unescape(f[3]), dir: unescape(f[4])}
		options := strings.Split(g[2], ",")
		m.readOnly = slices.Contains(strings.Split(f[5], ","), "ro") || slices.Contains(options, "ro")
		switch g[0] {
		case "cgroup":
			m.version, m.controllers = 1, options
		case "cgroup2":
			m.version = 2
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape decodes the octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// membership is the group of a process in one hierarchy, from a line of /proc/PID/cgroup
// (cgroups(7)).
type membership struct {
	controllers []string // nil for version 2
	path        string
}

// parseMemberships returns the groups of a process: those of version 1 hierarchies with
// controllers, and that of version 2 if there is one.
func parseMemberships(self string) (v1 []membership, v2 *membership) {
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		m := membership{path: strings.TrimSuffix(f[2], " (deleted)")}
		switch {
		case f[0] == "0" && f[1] == "":
			v2 = &m
		case f[1] != "" && !strings.HasPrefix(f[1], "name="):
			m.controllers = strings.Split(f[1], ",")
			v1 = append(v1, m)
		}
	}
	return v1, v2
}

// relativeTo returns the part of group after root, and whether group is root or below it. In a
// container the kernel writes paths outside of the cgroup namespace with "..": such a group is not
// visible in the mount.
func relativeTo(root, group string) (string, bool) {
	if hasDotDot(root) || hasDotDot(group) {
		return "", false
	}
	root, group = path.Clean("/"+root), path.Clean("/"+group)
	if root == "/" || root == group {
		return strings.TrimPrefix(group, root), true
	}
	if rest, ok := strings.CutPrefix(group, root+"/"); ok {
		return rest, true
	}
	return "", false
}

func hasDotDot(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// location is the directory of a group in a mount.
type location struct {
	mount mount
	dir   string // of the group
}

// locate returns the location of a group in the visible mounts, preferably in a writable one. If
// there is none, outside is a mount of the right hierarchy that does not show the group, if there
// is one.
func locate(mounts []mount, fits func(mount) bool, group string) (p location, outside string, ok bool) {
	for _, m := range mounts {
		if !fits(m) {
			continue
		}
		rest, shown := relativeTo(m.root, group)
		if !shown {
			outside = m.dir
			continue
		}
		if !ok || p.mount.readOnly && !m.readOnly {
			p, ok = location{mount: m, dir: path.Join(m.dir, rest)}, true
		}
	}
	return p, outside, ok
}
