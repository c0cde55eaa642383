//go:build !embedwasm

package artefact

// Embedded returns nothing: this build embeds no modules.
func Embedded() Set { return Set{} }
