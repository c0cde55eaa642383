// Package executor serves the sandbox executor protocol
// (specs/sandbox-executor-http.md).
package executor
