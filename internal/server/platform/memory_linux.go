package platform

import "golang.org/x/sys/unix"

// HostMemory is how much memory this host has, in bytes, without swap; 0 where that
// is not known.
func HostMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(uint64(i.Totalram) * uint64(i.Unit))
}
