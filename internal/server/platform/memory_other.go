//go:build !linux

package platform

// HostMemory returns the host's memory in bytes, without swap; 0 if unknown.
func HostMemory() int64 { return 0 }
