//go:build !linux

package guest

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Source returns Unsupported: images are unpacked, and the host's programs run, on Linux only.
func Source(context.Context, driver.Images, string, string) (open func(context.Context) (*Tree, error), release func(), err error) {
	return nil, nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "roots of machines can be built on Linux only", Fix: "use another driver"}
}
