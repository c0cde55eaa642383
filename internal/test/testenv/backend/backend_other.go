//go:build !linux

package backend

import "github.com/sandbar-dev/sandbar/internal/test/testenv"

// shared is empty: the drivers need Linux.
type shared struct{}

func (*shared) stop() error { return nil }

func backends() []backend {
	return []backend{{name: "native", needs: []testenv.Requirement{testenv.Linux}}}
}
