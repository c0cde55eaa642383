//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
)

// readFacts looks at this host.
func readFacts() facts { return facts{missing: missingTools()} }

// commonUmask leaves the user's as it is.
func commonUmask() {}

// killGroup leaves the command as it is: its end does not reach its children.
func killGroup(*exec.Cmd) {}

// runAsUser exists on Linux only.
func runAsUser(context.Context, options, string, []allowance, io.Writer) (counts, error) {
	return counts{}, errors.New("the ordinary user's pass exists on Linux only")
}
