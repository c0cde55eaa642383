package docker

import (
	"encoding/json"

	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// profileText returns the seccomp profile in the engine's format.
func profileText(goarch string) (string, error) {
	p, err := policy.CompileProfile(goarch)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(p)
	return string(b), err
}
