//go:build !embedagent

package embedded

// Binary returns nil: this build embeds no porter.
func Binary() []byte { return nil }
