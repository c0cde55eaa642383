//go:build !linux

package image

// syncTree does nothing. Only Linux has syncfs(2), and other systems have no sandboxes with images.
func syncTree(string) error { return nil }
