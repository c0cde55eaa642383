package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// redirectToStderr returns f as a new os.File, and makes standard error's handle the
// standard output of this process and of its children.
func redirectToStderr(f *os.File) (*os.File, error) {
	out := os.NewFile(f.Fd(), "responses")
	os.Stdout = os.Stderr
	return out, windows.SetStdHandle(windows.STD_OUTPUT_HANDLE, windows.Handle(os.Stderr.Fd()))
}
