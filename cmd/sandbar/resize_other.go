//go:build !unix

package main

// onResize does nothing: this system has no signal for it.
func onResize(func()) (stop func()) { return func() {} }
