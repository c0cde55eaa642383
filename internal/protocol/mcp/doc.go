// Package mcp serves the Model Context Protocol: an agent's model calls tools that run code and
// commands in sandboxes of an engine and work with their files (docs/mcp.md). The official Go SDK
// speaks the protocol; this package has the tools, the sessions and their limits.
//
// A session has its own sandboxes: a default one, which the first use makes, and those that the
// model creates. It sees no others. All of them, and their snapshots, end with the session.
//
// # Invariants
//
//   - Everything that a client sends or keeps has a limit: sessions, calls in progress, sandboxes,
//     snapshots, and the size of every argument and result.
//   - A program's failure is a result of the tool. A failure of the platform is a tool error with
//     the code, the message and the next step (errors.go).
//   - A result that is cut says so, and names the file and offset of the rest.
//   - A call whose client cancels it ends its program. When a session has ended, nothing of it is
//     left.
//   - A session over HTTP belongs to the client whose token began it; for other tokens it does not
//     exist.
package mcp
