// Package bus implements the worker WebSocket of the iii protocol: functions that are registered
// under names, and invocations of them. It is independent of sandboxes.
//
// [Server] is the engine's side, to which unmodified SDKs connect. It routes invocations to its own
// functions and to those that clients have registered. [Client] is a worker's side: it joins an
// engine elsewhere, registers the same functions there, and reconnects when the connection breaks.
//
// Invariants:
//
//   - A malformed or unknown frame is ignored and has no other effect. Only violations of the
//     WebSocket protocol, and messages beyond the size limit, end a connection.
//   - An invocation with an id is answered exactly once, with the function's result or an error.
//     The answer may be sent on a later connection of the same client, which identifies itself with
//     the token of the earlier one.
//   - The socket is read, and pings are answered, while functions run. So no client takes a long
//     call for a dead server.
//   - A lost client leaves nothing behind: its functions are removed, callers of them get an error,
//     and after a grace period its own calls are cancelled.
//   - Everything that a client sends is bounded: the size of messages, running calls, registered
//     functions, the time for a message.
package bus

import (
	"context"
	"encoding/json"
)

// Call is one invocation.
type Call struct {
	// Function is the id of the invoked function.
	Function string
	// Data is the payload as JSON, "null" if there is none.
	Data json.RawMessage
	// Caller is the id of the calling worker, "" if unknown.
	Caller string
	// Traceparent is the W3C trace context of the caller, "" for none. It is not validated.
	Traceparent string
}

// Function is a function that can be invoked.
type Function struct {
	// ID is the function's name, such as sandbox::exec.
	ID string
	// Description is a sentence or two for the user of the function.
	Description string
	// Request and Response are JSON schemas, or nil.
	Request, Response json.RawMessage
	// Metadata is the registrant's own data, or nil.
	Metadata json.RawMessage
	// Handle runs the function. Its result becomes JSON. An *Error is sent unchanged, any other
	// error as CodeFailed with its text. ctx ends when no caller waits for the answer any more.
	Handle func(ctx context.Context, c Call) (any, error)
}

// answer converts a result to the answer of an invocation.
func answer(result any, err error) (json.RawMessage, *Error) {
	if err != nil {
		if e, ok := err.(*Error); ok {
			return nil, e
		}
		return nil, &Error{Code: CodeFailed, Message: "handler error: " + err.Error()}
	}
	raw, err := encode(result)
	if err != nil {
		return nil, &Error{Code: CodeFailed, Message: "handler error: " + err.Error()}
	}
	return raw, nil
}

// guarded runs a function's handler. A panic becomes the error of its own call; its text, which may
// contain data, is left out.
func guarded(ctx context.Context, f func(context.Context, Call) (any, error), c Call) (result any, err error) {
	defer func() {
		if recover() != nil {
			err = &Error{Code: CodeFailed, Message: "handler error: the function failed because of a fault in this server"}
		}
	}()
	return f(ctx, c)
}
