// Package guest is Sandbar's program inside a PC of the v86 driver. It announces itself on the
// console and then becomes the agent (package agent), connected to the second serial port.
//
// As process 1 of the machine it first sets up what programs expect of a Linux system: /proc, /sys,
// /dev, /tmp, and the utilities of busybox if /bin/busybox exists. As any other process it finds
// them mounted.
package guest

import (
	"strconv"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Banner returns the line that the program writes to the console immediately before the agent's
// first frame on the second serial port.
func Banner() string { return BannerStart + strconv.Itoa(wire.Generation) }

// BannerStart begins that line in all releases.
const BannerStart = "SANDBAR-GUEST "
