// Command sandbar-guest is what Sandbar runs inside a PC of the mode v86: the
// first program of an image that is made for it, or what is sent to a shell
// that the machine gives its console. See internal/wasm/v86/guest.
package main

import "github.com/sandbar-dev/sandbar/internal/wasm/v86/guest"

func main() { guest.Main() }
