//go:build !embedv86

package artefact

// embeddedEmulator returns nothing: this build embeds no emulator.
func embeddedEmulator() Emulator { return Emulator{} }
