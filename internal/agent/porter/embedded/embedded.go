//go:build embedagent

package embedded

import _ "embed"

//go:embed sandbar-porter
var program []byte

// Binary returns the porter's executable for this binary's operating system and architecture. The
// caller must not modify it.
func Binary() []byte { return program }
