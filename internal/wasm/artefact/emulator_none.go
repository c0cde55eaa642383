//go:build !embedv86

package artefact

// embeddedEmulator returns nothing: this build carries no emulator.
func embeddedEmulator() Emulator { return Emulator{} }
