// Package bus is the worker WebSocket of the iii protocol: functions that are
// registered under names, and invocations that find them. It knows nothing of
// sandboxes.
//
// [Server] is the engine's side, which unmodified SDKs connect to. It routes
// invocations to functions of its own and to those that its clients have
// registered. [Client] is a worker's side: it joins an engine somewhere else,
// registers the same functions there, and comes back when the connection
// breaks.
//
// What it promises:
//
//   - A frame that cannot be read or is not known is ignored, and nothing else
//     is disturbed. Only the WebSocket protocol's own violations, and messages
//     beyond the size limit, end a connection.
//   - An invocation with an id is answered exactly once: with the function's
//     result, or with an error. It may be answered on a later connection of the
//     same client, which has shown the token of the earlier one.
//   - The socket is read while functions run, and pings are answered, so that
//     no client takes a long call for a dead server.
//   - A client that is gone leaves nothing: its functions are removed and who
//     waits for them is told, and after a grace in which it may come back the
//     calls it made are cancelled.
//   - Everything from a client has a limit: the size of a message, the calls
//     under way, the functions registered, the time a message may take.
package bus

import (
	"context"
	"encoding/json"
)

// Call is one invocation.
type Call struct {
	// Function is the id that was invoked.
	Function string
	// Data is the payload: JSON, "null" if there was none.
	Data json.RawMessage
	// Caller is the worker that invoked, "" where that is not known.
	Caller string
}

// Function is something that can be invoked.
type Function struct {
	// ID is the name, such as sandbox::exec.
	ID string
	// Description is a sentence or two for whoever chooses among functions.
	Description string
	// Request and Response are JSON schemas, or nil.
	Request, Response json.RawMessage
	// Metadata is the registrant's own, or nil.
	Metadata json.RawMessage
	// Handle runs the function. What it returns becomes JSON. An *Error goes
	// out as it is, any other error as CodeFailed with its text. ctx ends when
	// nobody waits for the answer any more.
	Handle func(ctx context.Context, c Call) (any, error)
}

// answer is what an invocation is answered with.
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

// guarded runs a function's handler. A panic in it is its own call's error and
// nobody else's; its text, which may quote data, is kept out.
func guarded(ctx context.Context, f func(context.Context, Call) (any, error), c Call) (result any, err error) {
	defer func() {
		if recover() != nil {
			err = &Error{Code: CodeFailed, Message: "handler error: the function failed because of a fault in this server"}
		}
	}()
	return f(ctx, c)
}
