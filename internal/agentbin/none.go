//go:build !embedagent

package agentbin

// Binary returns nil: this build carries no agent.
func Binary() []byte { return nil }
