//go:build embedagent

package embedded

import _ "embed"

//go:embed sandbar-agent
var program []byte

// Binary returns the agent's executable for this binary's operating system and architecture. The
// caller must not modify it.
func Binary() []byte { return program }
