//go:build !embedagent

package embedded

// Binary returns nil: this build embeds no agent.
func Binary() []byte { return nil }
