//go:build !embedwasm

package artefact

// Embedded returns nothing: this build carries no modules.
func Embedded() Set { return Set{} }
