//go:build !linux

package guest

import (
	"context"

	"github.com/sandbar-dev/sandbar"
)

// HostTree returns Unsupported: only Linux has programs for a Linux guest.
func HostTree(context.Context, []string) (*Tree, error) {
	return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "the host's programs cannot run in a Linux guest", Fix: "use an image"}
}
