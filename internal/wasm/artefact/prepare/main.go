// Command prepare fetches what others built and Sandbar embeds, checks it, strips
// it and puts it where a build finds it. It is all that a build needs for that:
// packages come over plain HTTP, by exact version and checksum, and no client
// program of a registry is used.
//
//	prepare fetch DIRECTORY     fetch what is missing there
//	prepare check DIRECTORY     succeed when all modules of the wasm driver are there
//	prepare check-pc DIRECTORY  succeed when the emulator is there, but for the guest's program
//
// Registries, proxies, authorities and tokens are those of the npm client's
// settings (npm_config_registry and the like, .npmrc) and of apt (DEBIAN_MIRROR
// names another mirror).
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wasm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: prepare fetch|check|check-pc DIRECTORY")
	}
	switch args[0] {
	case "fetch":
		return fetch(args[1], os.Stderr)
	case "check":
		_, err := artefact.Read(args[1])
		return err
	case "check-pc":
		return artefact.CheckEmulator(args[1])
	}
	return fmt.Errorf("there is no command %q", args[0])
}
