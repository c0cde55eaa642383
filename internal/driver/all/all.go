// Package all is the list of the drivers of this build, strongest boundary
// first. What is linked is what stands here: no driver registers itself.
package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/docker"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/driver/v86"
)

// Factories returns the drivers of this build: those of Isolating; those that need
// an image, an engine or a runtime that somebody has set up, and are only used when
// they are asked for; and local, which has no boundary at all and is for trusted code
// only.
func Factories(agent []byte) []driver.Factory {
	return append(append(append(Isolating(agent), v86.Factory(), docker.Factory(agent)), runtimes(agent)...), local.Factory())
}
