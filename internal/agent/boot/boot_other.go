//go:build !linux

package boot

// Main does nothing: machines run Linux.
func Main() {}
