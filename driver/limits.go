package driver

import "github.com/sandbar-dev/sandbar"

// Unenforced returns the name of the first limit that l sets and e does not enforce, or "".
func Unenforced(l sandbar.Limits, e sandbar.Enforcements) string {
	for _, row := range []struct {
		name string
		set  bool
		by   sandbar.Enforcement
	}{
		{"memory", l.Memory > 0, e.Memory},
		{"cpus", l.CPUs > 0, e.CPUs},
		{"cpu_shares", l.CPUShares > 0, e.CPUShares},
		{"pids", l.PIDs > 0, e.PIDs},
		{"disk", l.Disk > 0, e.Disk},
		{"inodes", l.Inodes > 0, e.Inodes},
		{"files", l.Files > 0, e.Files},
	} {
		if row.set && row.by == sandbar.EnforcedNone {
			return row.name
		}
	}
	return ""
}
