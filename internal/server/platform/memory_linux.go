package platform

import "golang.org/x/sys/unix"

// HostMemory returns the host's memory in bytes, without swap; 0 if unknown.
func HostMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(uint64(i.Totalram) * uint64(i.Unit))
}
