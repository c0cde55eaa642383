package driver

import "github.com/sandbar-dev/sandbar"

// RefuseTerminal returns Unsupported if c has a Terminal, for a driver without Caps.Terminals.
func RefuseTerminal(driver string, c sandbar.Cmd) error {
	if c.Terminal == nil {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "terminal",
		Message: "the driver " + sandbar.Quote(driver, 40) + " has no terminals",
		Fix:     "run the program without a terminal, or use another driver: native, oci, docker, e2b, v86 or vm"}
}
