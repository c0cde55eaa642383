//go:build !linux

package guest

import "os"

// Main does nothing: guests run Linux.
func Main() {
	os.Stderr.WriteString("sandbar-guest: is for guests that run Linux\n")
	os.Exit(2)
}
