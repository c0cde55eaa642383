package main

import (
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/config"
)

// outbound is the operator's rules for sandboxes that reach out; nil: none may.
func outbound(n config.Network) *driver.Outbound {
	if !n.Outbound {
		return nil
	}
	return &driver.Outbound{AllowPrivate: n.AllowPrivate, Deny: n.Deny, DeniedPorts: n.PortsDenied, DNS: n.DNS,
		MaxConnections: int(n.MaxConnections), MaxBytes: n.MaxBytes}
}
