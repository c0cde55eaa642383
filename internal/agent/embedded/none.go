//go:build !embedagent

package embedded

// Binary returns nil: this build carries no agent.
func Binary() []byte { return nil }
