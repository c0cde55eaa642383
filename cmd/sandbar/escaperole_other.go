//go:build !linux

package main

import (
	"context"
	"io"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/attack"
	"github.com/sandbar-dev/sandbar/internal/config"
)

const imageName = ""

// callerIs returns the user that this process is. The other roles are Linux's.
func callerIs() attack.As { return attack.User }

type actor struct{}

func (a *app) newActor(as attack.As) (*actor, error) {
	return nil, sandbar.Errorf(sandbar.Unsupported, "the role %s needs Linux", as)
}

func (*actor) run(context.Context, io.Reader, io.Writer, io.Writer, ...string) error { return nil }
func (*actor) give(context.Context, *config.Config, string) error                    { return nil }
func (*actor) remove()                                                               {}
