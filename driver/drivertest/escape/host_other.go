//go:build !linux

package escape

// takeQuotas has nothing to take: the cases are written for Linux.
func takeQuotas() error { return nil }
