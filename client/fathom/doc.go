// Package fathom is a client of the Fathom Sandbox Protocol, version 1.0 (docs/fathom.md). It runs
// programs over one WebSocket, many at once, and streams their output.
//
//	c, err := fathom.New(fathom.Options{URL: "http://127.0.0.1:8080", Token: token})
//	...
//	defer c.Close()
//	r, err := c.Execute(ctx, fathom.Request{Language: "python", Code: "print(6 * 7)"}, nil)
//
// # Connections
//
// The client connects at the first use. After a lost connection it connects again: at once, then
// after pauses that double up to Options.MaxBackoff. Requests that were not sent wait for the new
// connection, at most Options.GiveUp.
//
// An execution whose connection is lost is not continued, because the protocol has no sessions: its
// call returns an *Error with the code NETWORK_ERROR, which is Retryable. Whether its program ran
// is not known; Result.Acknowledged reports whether the server had accepted it. With
// Request.Retries the client runs it again.
//
// # Limits
//
// A server cannot make the client use unbounded memory: a message has at most Options.MaxMessage
// bytes, and an execution that sends more output than Request.MaxOutput is cancelled. A receiver of
// output that blocks delays no other execution.
package fathom
