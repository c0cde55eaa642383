package artefact

import (
	"os"
	"path/filepath"
)

// emulator is the PC emulator v86 and its firmware, SeaBIOS.
var emulator = [...]Module{
	{Name: "v86-script", File: "libv86.js", Package: "v86@0.5.462", Path: "build/libv86.js", Licence: "BSD-2-Clause", Unmodified: true,
		Upstream: "8715206b8c5ab0a206f6e8913c5f705a15547df51d3e0c032e3d00439303c94c",
		Prepared: "8715206b8c5ab0a206f6e8913c5f705a15547df51d3e0c032e3d00439303c94c"},
	{Name: "v86-core", File: "v86.wasm", Package: "v86@0.5.462", Path: "build/v86.wasm", Licence: "BSD-2-Clause",
		Upstream: "aa0d0e149d6b60063b85de4871e78505637ce92821e14a9f9802c4008ba2336e",
		Prepared: "bc2d4bd5d9ae39ad4a269ee2e6519960c6f96d1b4f98e4f73608b7ff6b555b9e"},
	{Name: "seabios", File: "bios.bin", Package: "deb:seabios=1.16.2-1", Path: "usr/share/seabios/bios.bin", Licence: "LGPL-3.0-or-later", Unmodified: true,
		Upstream: "7ba476745bd8d32d66b7a5bd12999e2445e7a345a4a72c30352b1d4a69a26e88",
		Prepared: "7ba476745bd8d32d66b7a5bd12999e2445e7a345a4a72c30352b1d4a69a26e88"},
	{Name: "seavgabios", File: "vgabios.bin", Package: "deb:seabios=1.16.2-1", Path: "usr/share/seabios/vgabios-stdvga.bin", Licence: "LGPL-3.0-or-later", Unmodified: true,
		Upstream: "cc2f735f19b6318922ac3de9506dee498f149a6b75534f7e5c176d4441a7fa4a",
		Prepared: "cc2f735f19b6318922ac3de9506dee498f149a6b75534f7e5c176d4441a7fa4a"},
}

// All returns the modules and the downloaded parts of the emulator.
func All() []Module { return append(Modules(), emulator[:]...) }

// guestFile is the program for the emulator's guests, cmd/sandbar-guest, which "make build" builds.
const guestFile = "sandbar-guest"

// Emulator is the files of a PC of one build. A missing one is nil.
type Emulator struct {
	Script, Core []byte // v86
	BIOS, VGA    []byte // SeaBIOS
	Guest        []byte // Sandbar's program for the guest, linux/386
}

// Complete reports whether no file is missing.
func (e Emulator) Complete() bool {
	return len(e.Script) > 0 && len(e.Core) > 0 && len(e.BIOS) > 0 && len(e.VGA) > 0 && len(e.Guest) > 0
}

// ReadEmulator returns the emulator of a directory, with verified checksums, or for "" the embedded
// one. The caller must not modify it.
func ReadEmulator(dir string) (Emulator, error) {
	if dir == "" {
		return embeddedEmulator(), nil
	}
	e, err := readEmulator(dir)
	if err == nil {
		e.Guest, err = os.ReadFile(filepath.Join(dir, guestFile))
	}
	return e, err
}

// CheckEmulator verifies the emulator in a directory, except for the guest's program, which is
// built and not downloaded.
func CheckEmulator(dir string) error {
	_, err := readEmulator(dir)
	return err
}

func readEmulator(dir string) (Emulator, error) {
	var e Emulator
	for i, to := range []*[]byte{&e.Script, &e.Core, &e.BIOS, &e.VGA} {
		b, err := read(dir, emulator[i])
		if err != nil {
			return Emulator{}, err
		}
		*to = b
	}
	return e, nil
}
