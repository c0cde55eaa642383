package cgroup

import (
	"path"
	"slices"
	"strings"
)

// mount is a mounted hierarchy, from a line of /proc/self/mountinfo
// (proc_pid_mountinfo(5)).
type mount struct {
	version     int
	root        string   // the group that is seen at dir
	dir         string   // where it is mounted
	readOnly    bool     // by the mount's options or the file system's
	controllers []string // version 1 only
}

// parseMounts returns the mounted hierarchies in the order they were mounted.
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

// unescape undoes the octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// membership is the group this process is in, in one hierarchy, from a line of
// /proc/self/cgroup (cgroups(7)).
type membership struct {
	controllers []string // nil for version 2
	path        string
}

// parseMemberships returns this process's groups: those of version 1
// hierarchies that have controllers, and that of version 2 if it has one.
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

// below returns the part of group that follows root, and whether group is root
// or below it. In a container the kernel writes what lies outside of the
// cgroup namespace with "..": such a group has no known place in the mount.
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

// place is where this process's own group of a hierarchy is seen.
type location struct {
	mount mount
	dir   string // of the own group
}

// find returns the place of a group among mounts that are visible, preferring
// one that can be written to. Where there is none, outside is a mount that
// fits but does not show the group, if there is one.
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
