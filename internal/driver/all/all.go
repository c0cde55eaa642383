// Package all is the list of the drivers of this build, strongest boundary
// first. What is linked is what stands here: no driver registers itself.
package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/docker"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
	"github.com/sandbar-dev/sandbar/internal/driver/v86"
)

// Factories returns the drivers of this build: those of Isolating; v86, which
// needs an image and is slow, and docker, which needs an engine that somebody has
// set up, so they must be asked for; and local, which has no boundary at all and
// is for trusted code only.
func Factories(agent []byte) []driver.Factory {
	return append(Isolating(agent), v86.Factory(), docker.Factory(agent), local.Factory())
}
