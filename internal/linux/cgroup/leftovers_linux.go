package cgroup

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Leftover is a group whose daemon is dead.
type Leftover struct {
	Name string   // "INSTANCE.ID"
	Dirs []string // its directories, one in each hierarchy that still has it
}

// Leftovers returns the groups whose daemon is not alive, by name. alive is
// asked for each instance that occurs. It looks in this manager's Parents and
// in recorded, Parents of earlier daemons that may have been started in
// another group; of those, what is no directory of groups of ours is ignored.
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
				continue // not made by a daemon
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

// searched returns the directories to look in, each once.
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

// Remove kills what is in a leftover and removes it, and the directory it was
// in when that is empty then and not one of this manager's Parents. It waits
// for processes to be gone as long as ctx allows.
func (m *Manager) Remove(ctx context.Context, l Leftover) error {
	if err := m.remove(ctx, l.Dirs); err != nil {
		return err
	}
	for _, dir := range l.Dirs {
		if parent := path.Dir(dir); !slices.Contains(m.Parents(), parent) {
			m.sys.Rmdir(parent) // EBUSY: other groups are there
		}
	}
	return nil
}
