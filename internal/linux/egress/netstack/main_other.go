//go:build !linux

package netstack

// Main returns: only on Linux sandboxes reach out.
func Main() {}
