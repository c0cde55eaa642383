package mcp

import (
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// errorKey is the key of an error's fields in _meta of a tool's result.
const errorKey = "sandbar/error"

// errorBody is an error of the platform in a result or in an error's data.
type errorBody struct {
	Code       sandbar.Code `json:"code"`
	Field      string       `json:"field,omitempty"`
	Message    string       `json:"message"`
	Fix        string       `json:"fix,omitempty"`
	RetryAfter float64      `json:"retry_after,omitempty"` // seconds
}

// bodyOf returns the fields of an error. An error of another type is one of the SDK about the
// arguments.
func bodyOf(err error) errorBody {
	e, ok := err.(*sandbar.Error)
	if !ok {
		e = sandbar.AsError(err)
		if e.Code == sandbar.Internal {
			e = &sandbar.Error{Code: sandbar.Invalid, Message: err.Error(), Fix: "see the input schema of the tool"}
		}
	}
	plain := *e
	plain.Fix = ""
	return errorBody{Code: e.Code, Field: e.Field, Message: plain.Error(), Fix: nextStep(e), RetryAfter: e.RetryAfter.Seconds()}
}

// nextStep returns the next step after an error.
func nextStep(e *sandbar.Error) string {
	switch {
	case e.Fix != "":
		return e.Fix
	case e.Code == sandbar.Gone:
		return "call again without sandbox for a new one"
	case e.Code.Retryable():
		return "try again later"
	case e.Code == sandbar.NotFound && e.Field == "":
		return "list the directory with list_files"
	case e.Code == sandbar.NoSpace:
		return "remove files, or create a sandbox with a larger disk"
	}
	return "change the arguments"
}

// toolError is the result of a call that the platform could not do.
func toolError(err error) *sdk.CallToolResult {
	b := bodyOf(err)
	return &sdk.CallToolResult{IsError: true, Meta: sdk.Meta{errorKey: b},
		Content: []sdk.Content{&sdk.TextContent{Text: "error " + string(b.Code) + ": " + b.Message + "\nnext step: " + b.Fix}}}
}

// protocolError is the error of a request that is no call of a tool.
func protocolError(err error) error {
	b := bodyOf(err)
	data, _ := json.Marshal(b) // strings and numbers can be encoded
	return &jsonrpc.Error{Code: rpcCodeOf(b.Code), Message: string(b.Code) + ": " + b.Message + " (" + b.Fix + ")", Data: data}
}

// rpcCodeOf returns the JSON-RPC code of each code of the platform's errors.
func rpcCodeOf(c sandbar.Code) int64 {
	switch c {
	case sandbar.Invalid, sandbar.Denied, sandbar.Exists, sandbar.Conflict, sandbar.TooLarge, sandbar.Unsupported,
		sandbar.NotFound, sandbar.Gone:
		return jsonrpc.CodeInvalidParams
	}
	return jsonrpc.CodeInternalError
}

// refuse answers an HTTP request with an error.
func refuse(w http.ResponseWriter, status int, err error) {
	b, _ := json.Marshal(wire.ProblemOf(status, err)) // strings and numbers can be encoded
	w.Header().Set("Content-Type", wire.MediaProblem)
	w.WriteHeader(status)
	w.Write(b)
}

func invalid(field, message, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix}
}
