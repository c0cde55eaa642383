//go:build linux && !amd64

package vm

// counterParameter returns no parameter: the emulated counter is no counter of this processor.
func counterParameter() string { return "" }
