package cgroup

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Leftover is a group of a daemon that does not run any more.
type Leftover struct {
	Name string   // "INSTANCE.ID"
	Dirs []string // one per hierarchy in which it exists
}

// Leftovers returns the groups of dead daemons, by name. It calls alive for each instance. It
// searches this manager's Parents and those in recorded, the Parents of earlier daemons in other
// groups; it ignores recorded directories that are not parents of groups.
func (m *Manager) Leftovers(alive func(instance string) bool, recorded ...string) ([]Leftover, error) {
	known := map[string]bool{}
	found := map[string]*Leftover{}
	for _, parent := range m.searched(recorded) {
		names, err := m.sys.Subdirs(parent)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, kernelError("list "+parent, err)
		}
		for _, name := range names {
			instance, id, ok := strings.Cut(name, ".")
			if !ok || !validName(instance) || !validName(id) {
				continue // not a group of a daemon
			}
			if _, asked := known[instance]; !asked {
				known[instance] = instance == m.instance || alive(instance)
			}
			if known[instance] {
				continue
			}
			if found[name] == nil {
				found[name] = &Leftover{Name: name}
			}
			found[name].Dirs = append(found[name].Dirs, parent+"/"+name)
		}
	}
	var list []Leftover
	for _, l := range found {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Leftover) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// searched returns the directories to search, without duplicates.
func (m *Manager) searched(recorded []string) []string {
	dirs := m.Parents()
	for _, dir := range recorded {
		dir = path.Clean(dir)
		if path.IsAbs(dir) && path.Base(dir) == parentName && m.sys.Version(dir) != 0 && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Remove kills the processes of a leftover and removes it. It also removes the parent directory, if
// that is empty and not one of this manager's Parents. It waits for processes to exit until ctx
// ends.
func (m *Manager) Remove(ctx context.Context, l Leftover) error {
	if err := m.remove(ctx, l.Dirs); err != nil {
		return err
	}
	for _, dir := range l.Dirs {
		if parent := path.Dir(dir); !slices.Contains(m.Parents(), parent) {
			m.sys.Rmdir(parent) // EBUSY: it contains other groups
		}
	}
	return nil
}
