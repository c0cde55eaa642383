// Package all is the list of the drivers of this build, strongest boundary
// first. What is linked is what stands here: no driver registers itself.
package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
)

// Factories returns the drivers of this build: those of Isolating, those that
// need something installed, which are taken by name only, and local, which has no
// boundary at all and is for trusted code only.
func Factories(agent []byte) []driver.Factory {
	return append(append(Isolating(agent), installed(agent)...), local.Factory())
}
