//go:build !linux

package docker

// kernelRelease matches no engine: containers are never processes of this system itself.
func kernelRelease() string { return "?" }

// swapsHere is used only if containers are processes of this machine.
func swapsHere() bool { return true }
