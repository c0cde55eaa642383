//go:build !linux

package platform

// HostMemory is how much memory this host has, in bytes, without swap; 0 where that
// is not known.
func HostMemory() int64 { return 0 }
