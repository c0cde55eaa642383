//go:build embedwasm

package artefact

import _ "embed"

//go:embed python.wasm
var pythonModule []byte

//go:embed quickjs.wasm
var javascriptModule []byte

// Embedded returns the embedded modules. The caller must not modify them.
func Embedded() Set { return Set{Python: pythonModule, JavaScript: javascriptModule} }
