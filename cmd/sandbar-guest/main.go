// Command sandbar-guest is Sandbar's program inside an emulated PC of the driver v86. An image that
// was built for Sandbar starts it as process 1. If another image has a shell on its console,
// Sandbar sends the program to that shell and starts it. See internal/wasm/v86/guest.
package main

import "github.com/sandbar-dev/sandbar/internal/wasm/v86/guest"

func main() { guest.Main() }
