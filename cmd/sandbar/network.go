package main

import (
	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
)

// networkHelp is the help text of --network.
const networkHelp = "allow outbound TCP, UDP and DNS, within the rules of the configuration (network.…)"

// networkOf reads --network.
func networkFlag(cmd *cobra.Command) sandbar.Network {
	if out, _ := cmd.Flags().GetBool("network"); out {
		return sandbar.NetworkOutbound
	}
	return sandbar.NetworkNone
}
