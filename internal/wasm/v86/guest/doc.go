// Package guest is Sandbar inside a PC of the mode v86: it becomes the agent
// (package agent) at the second serial port, after it has said so on the
// console.
//
// As the first program of the machine it brings up what programs expect of a
// system before: /proc, /sys, /dev, /tmp, and the tools of busybox where there
// is one. As any other program it finds them there.
package guest

import (
	"strconv"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Banner is the line on the console that tells that the agent is about to
// speak, at the second serial port.
func Banner() string { return BannerStart + strconv.Itoa(wire.Generation) }

// BannerStart is how that line begins, whatever the release.
const BannerStart = "SANDBAR-GUEST "
