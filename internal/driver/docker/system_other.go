//go:build !linux

package docker

// kernelRelease is no engine's: there are no containers on this system itself.
func kernelRelease() string { return "?" }

// swapsHere is about a machine whose containers are its own processes.
func swapsHere() bool { return true }
