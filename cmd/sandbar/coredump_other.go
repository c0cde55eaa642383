//go:build !linux

package main

// forbidCore does nothing: Go programs leave no core dumps unless they are told to.
func limitCoreDumps() {}
