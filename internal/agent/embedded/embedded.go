//go:build embedagent

package embedded

import _ "embed"

//go:embed sandbar-agent
var program []byte

// Binary returns the agent's program, for the system and processor this binary
// was built for. It must not be changed.
func Binary() []byte { return program }
