//go:build !linux

package pid1

// Main returns: only Linux runs programs as PID 1.
func Main() {}
