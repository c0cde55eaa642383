package native

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
)

// optionPaths is the option with additional host directories for sandboxes.
const optionPaths = "paths"

// parseOptions parses the driver's options. Invalid: one is unknown or malformed.
func parseOptions(options map[string]string) (extra []string, err error) {
	for k, v := range options {
		if k != optionPaths {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "drivers.native." + k,
				Message: "the native driver has no option " + sandbar.Quote(k, 40) + "; it has: " + optionPaths}
		}
		if extra, err = hostenv.ParsePaths(v); err != nil {
			return nil, err
		}
	}
	return extra, nil
}
