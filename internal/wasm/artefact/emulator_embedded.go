//go:build embedv86

package artefact

import _ "embed"

//go:embed libv86.js
var scriptFile []byte

//go:embed v86.wasm
var coreFile []byte

//go:embed bios.bin
var biosFile []byte

//go:embed vgabios.bin
var vgaFile []byte

//go:embed sandbar-guest
var guestProgram []byte

func embeddedEmulator() Emulator {
	return Emulator{Script: scriptFile, Core: coreFile, BIOS: biosFile, VGA: vgaFile, Guest: guestProgram}
}
