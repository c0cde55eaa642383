//go:build !linux

package main

import (
	"context"
	"io"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

const roleImage = ""

// currentUserKind returns User: only Linux has the other roles.
func currentUserKind() escapesuite.As { return escapesuite.User }

type roleUser struct{}

func (a *app) newRoleUser(as escapesuite.As) (*roleUser, error) {
	return nil, sandbar.Errorf(sandbar.Unsupported, "the role %s needs Linux", as)
}

func (*roleUser) run(context.Context, io.Reader, io.Writer, io.Writer, ...string) error { return nil }
func (*roleUser) copyImage(context.Context, *config.Config, string) error               { return nil }
func (*roleUser) remove()                                                               {}
