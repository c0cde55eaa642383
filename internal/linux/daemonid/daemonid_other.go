//go:build !linux

package daemonid

// Self returns "": ids exist on Linux only.
func Self() (string, error) { return "", nil }

// ForPID returns "".
func ForPID(int) string { return "" }

// Alive returns true, since it cannot be determined.
func Alive(string) bool { return true }

// Scope returns "".
func Scope() string { return "" }
