//go:build !linux

package confine

// Worker does nothing on this system.
func Worker(readable ...string) error { return nil }

// Runner does nothing on this system.
func Runner() error { return nil }

// Data does nothing on this system.
func LimitData(int64) error { return nil }

// Unpacker does nothing on this system.
func Unpacker(dir string, memory, file int64) error { return nil }
