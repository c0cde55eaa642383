// Package wire has the words of the Fathom Sandbox Protocol, version 1.0, that the server and the
// client share: the types of messages, statuses and error codes (docs/protocols.md, Fathom).
package wire

// Version is the version of the protocol, in the field v and in VersionHeader.
const Version = 1

// VersionHeader carries the version at the upgrade, in both directions ("Version Negotiation").
const VersionHeader = "X-Protocol-Version"

// Path is the path of the WebSocket ("Authentication").
const Path = "/ws"

// The types of messages ("Client → Sandbox Messages" and "Sandbox → Client Messages").
const (
	Execute = "execute"
	Cancel  = "cancel"
	Ping    = "ping"

	Ack        = "ack"
	StatusType = "status"
	Stdout     = "stdout"
	Stderr     = "stderr"
	ResultType = "result"
	ErrorType  = "error"
	Pong       = "pong"
)

// Status is the state of an execution in a status message. The set is closed: a known client
// crashes at a status that the specification does not have.
type Status string

// The statuses.
const (
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	TimedOut  Status = "timeout"
	OOM       Status = "oom"
)

// Terminal reports whether no other status can follow.
func (s Status) Terminal() bool {
	switch s {
	case Completed, Failed, Cancelled, TimedOut, OOM:
		return true
	}
	return false
}

// Code is an error code of the protocol ("Error Codes"). The set is closed.
type Code string

// The codes.
const (
	CodeTimeout              Code = "TIMEOUT"
	CodeOOM                  Code = "OOM"
	CodeOutputLimit          Code = "OUTPUT_LIMIT"
	CodeLanguageNotSupported Code = "LANGUAGE_NOT_SUPPORTED"
	CodeInvalidRequest       Code = "INVALID_REQUEST"
	CodeUnknownExecution     Code = "UNKNOWN_EXECUTION"
	CodeSandboxOverloaded    Code = "SANDBOX_OVERLOADED"
	CodeInternalError        Code = "INTERNAL_ERROR"
	CodeNetworkError         Code = "NETWORK_ERROR"
)

// Retryable returns the "Retryable" column of the table of error codes.
func (c Code) Retryable() bool {
	switch c {
	case CodeSandboxOverloaded, CodeInternalError, CodeNetworkError:
		return true
	}
	return false
}
