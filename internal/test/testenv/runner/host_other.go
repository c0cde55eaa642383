//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
)

// readFacts looks at this host.
func readFacts() facts { return facts{missing: missingTools()} }

// commonUmask leaves the user's as it is.
func commonUmask() {}

// killGroup leaves the command as it is: its end does not reach its children.
func killGroup(*exec.Cmd) {}

// home exists on Linux only: elsewhere the passes are those of the user that runs this program.
type home struct{ beside bool }

func newHome(context.Context, int) (*home, error) {
	return nil, errors.New("as root the tests run on Linux only; run them as another user")
}

func (*home) remove()                                   {}
func (*home) path(elem ...string) string                { return filepath.Join(elem...) }
func (*home) fill(string) error                         { return nil }
func (*home) pass(*suite, []allowance, io.Writer) *pass { return nil }
