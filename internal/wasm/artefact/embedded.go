//go:build embedwasm

package artefact

import _ "embed"

//go:embed python.wasm
var pythonModule []byte

//go:embed quickjs.wasm
var javascriptModule []byte

// Embedded returns the modules that this binary carries. They must not be
// changed.
func Embedded() Set { return Set{Python: pythonModule, JavaScript: javascriptModule} }
