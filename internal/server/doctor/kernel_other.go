//go:build !linux

package doctor

// kernelRelease returns "": it is known on Linux only.
func kernelRelease() string { return "" }

// kernelFeatures returns none: they are features of Linux.
func kernelFeatures() []Feature { return []Feature{} }
