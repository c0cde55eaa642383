//go:build !linux

package main

import (
	"context"
	"io"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

const imageName = ""

// callerIs returns the user that this process is. The other roles are Linux's.
func callerIs() escapesuite.As { return escapesuite.User }

type actor struct{}

func (a *app) newActor(as escapesuite.As) (*actor, error) {
	return nil, sandbar.Errorf(sandbar.Unsupported, "the role %s needs Linux", as)
}

func (*actor) run(context.Context, io.Reader, io.Writer, io.Writer, ...string) error { return nil }
func (*actor) give(context.Context, *config.Config, string) error                    { return nil }
func (*actor) remove()                                                               {}
