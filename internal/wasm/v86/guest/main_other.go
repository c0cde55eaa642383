//go:build !linux

package guest

import "os"

// Main fails: guests run Linux.
func Main() {
	os.Stderr.WriteString("sandbar-guest: runs in Linux guests only\n")
	os.Exit(2)
}
