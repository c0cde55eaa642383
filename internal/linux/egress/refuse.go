package egress

import "github.com/sandbar-dev/sandbar"

// Refuse returns Unsupported for a network that a driver does not provide. missing says why its
// sandboxes cannot have the network "outbound"; "" means that they can.
func Refuse(driver string, n sandbar.Network, missing string) error {
	e := &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: missing, Fix: "use the network \"none\""}
	switch {
	case n == "" || n == sandbar.NetworkNone, n == sandbar.NetworkOutbound && missing == "":
		return nil
	case n != sandbar.NetworkOutbound:
		e.Message = "network " + sandbar.Quote(string(n), 40) + " is not possible; the driver " + driver + " has \"none\" and \"outbound\""
	}
	return e
}
