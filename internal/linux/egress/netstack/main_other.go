//go:build !linux

package netstack

// Main returns: sandboxes have a network on Linux only.
func Main() {}
