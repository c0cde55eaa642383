//go:build !linux

package main

// limitCoreDumps does nothing: a Go program dumps core only with GOTRACEBACK=crash.
func limitCoreDumps() {}
