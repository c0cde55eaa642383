//go:build !linux

package doctor

// kernelRelease is known on Linux only.
func kernelRelease() string { return "" }

// kernelFeatures are those of Linux.
func kernelFeatures() []Feature { return []Feature{} }
