//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// readFacts reads the facts of this host.
func readFacts() facts {
	return facts{missing: missingTools(), long: testenv.Long(), noCluster: true, noHelm: true}
}

// commonUmask does nothing.
func commonUmask() {}

// killGroup does nothing: cancellation kills only the command itself.
func killGroup(*exec.Cmd) {}

// home exists on Linux only: elsewhere the only pass is that of the current user.
type home struct{ beside bool }

func newHome(context.Context, int) (*home, error) {
	return nil, errors.New("tests run as root on Linux only; run them as another user")
}

func (*home) remove()                                   {}
func (*home) path(elem ...string) string                { return filepath.Join(elem...) }
func (*home) fill(string) error                         { return nil }
func (*home) pass(*suite, []allowance, io.Writer) *pass { return nil }
