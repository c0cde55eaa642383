//go:build tools

// Package tools lists the programs of this module that "make cluster" builds: gVisor's runtime, and
// its shim for containerd.
package tools

import (
	_ "gvisor.dev/gvisor/runsc"
	_ "gvisor.dev/gvisor/shim"
)
