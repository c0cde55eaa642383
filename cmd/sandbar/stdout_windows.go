package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// divert returns f under another name. The handle that this process and its
// children know as standard output then is that of standard error.
func redirectToStderr(f *os.File) (*os.File, error) {
	out := os.NewFile(f.Fd(), "responses")
	os.Stdout = os.Stderr
	return out, windows.SetStdHandle(windows.STD_OUTPUT_HANDLE, windows.Handle(os.Stderr.Fd()))
}
