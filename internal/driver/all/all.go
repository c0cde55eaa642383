// Package all is the list of the drivers of this build, strongest boundary
// first. What is linked is what stands here: no driver registers itself.
package all

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/local"
)

// Factories returns the drivers of this build, strongest boundary first. The
// last, local, has no boundary at all and is never chosen on its own.
func Factories() []driver.Factory {
	return append(isolating(), local.Factory())
}
