package main

import (
	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
)

// networkHelp is the help of the flag --network, wherever it is.
const networkHelp = "let it reach out over TCP, UDP and DNS, within the rules of the configuration (network.…)"

// networkOf reads --network.
func networkFlag(cmd *cobra.Command) sandbar.Network {
	if out, _ := cmd.Flags().GetBool("network"); out {
		return sandbar.NetworkOutbound
	}
	return sandbar.NetworkNone
}
