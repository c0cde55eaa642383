package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// kind is the type of a message.
type kind string

// Message types in both directions. Others are ignored.
const (
	kindWorkerRegistered          kind = "workerregistered"
	kindReattach                  kind = "reattach"
	kindRegisterFunction          kind = "registerfunction"
	kindUnregisterFunction        kind = "unregisterfunction"
	kindRegistrationRejected      kind = "registrationrejected"
	kindInvokeFunction            kind = "invokefunction"
	kindInvocationResult          kind = "invocationresult"
	kindRegisterTriggerType       kind = "registertriggertype"
	kindUnregisterTriggerType     kind = "unregistertriggertype"
	kindRegisterTrigger           kind = "registertrigger"
	kindUnregisterTrigger         kind = "unregistertrigger"
	kindTriggerRegistrationResult kind = "triggerregistrationresult"
	kindRegisterService           kind = "registerservice"
	kindPing                      kind = "ping"
	kindPong                      kind = "pong"
)

// message is any frame. Absent fields are omitted when it is sent: a client takes "stacktrace":
// null for a malformed error.
type message struct {
	Type kind `json:"type"`

	// invokefunction, invocationresult
	InvocationID string          `json:"invocation_id,omitempty"`
	FunctionID   string          `json:"function_id,omitempty"`
	Data         json.RawMessage `json:"data,omitempty"`
	Action       *action         `json:"action,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	Error        *Error          `json:"error,omitempty"`
	Traceparent  string          `json:"traceparent,omitempty"`
	Baggage      string          `json:"baggage,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`

	// registerfunction, unregisterfunction and the trigger messages
	ID             string          `json:"id,omitempty"`
	Description    string          `json:"description,omitempty"`
	RequestFormat  json.RawMessage `json:"request_format,omitempty"`
	ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	TriggerType    string          `json:"trigger_type,omitempty"`

	// workerregistered, reattach
	WorkerID         string `json:"worker_id,omitempty"`
	PreviousWorkerID string `json:"previous_worker_id,omitempty"`
	ReattachToken    string `json:"reattach_token,omitempty"`

	// registrationrejected
	Code          string `json:"code,omitempty"`
	Namespace     string `json:"namespace,omitempty"`
	OwnerWorkerID string `json:"owner_worker_id,omitempty"`
}

// action is what happens to an invocation's result.
type action struct {
	Type  string `json:"type"`
	Queue string `json:"queue,omitempty"`
}

// void reports whether no answer is expected.
func (m *message) void() bool {
	return m.InvocationID == "" || m.Action != nil && m.Action.Type == "void"
}

var errFrame = errors.New("not a message of the protocol")

// decode decodes one frame. A field of a wrong type counts as absent, so that the caller still gets
// an answer. A frame without a readable type, or that is not UTF-8, is an error.
func decode(frame []byte) (*message, error) {
	if !utf8.Valid(frame) {
		return nil, errFrame
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(frame, &fields); err != nil {
		return nil, errFrame
	}
	m := &message{}
	for name, into := range map[string]*string{
		"type": (*string)(&m.Type), "invocation_id": &m.InvocationID, "function_id": &m.FunctionID,
		"traceparent": &m.Traceparent, "baggage": &m.Baggage, "id": &m.ID, "description": &m.Description,
		"trigger_type": &m.TriggerType, "worker_id": &m.WorkerID, "previous_worker_id": &m.PreviousWorkerID,
		"reattach_token": &m.ReattachToken, "code": &m.Code, "namespace": &m.Namespace,
		"owner_worker_id": &m.OwnerWorkerID,
	} {
		var s string
		if raw, ok := fields[name]; ok && json.Unmarshal(raw, &s) == nil {
			*into = s
		}
	}
	for name, into := range map[string]*json.RawMessage{
		"data": &m.Data, "result": &m.Result, "metadata": &m.Metadata,
		"request_format": &m.RequestFormat, "response_format": &m.ResponseFormat,
	} {
		*into = fields[name]
	}
	if raw := fields["action"]; len(raw) > 0 {
		var a action
		if json.Unmarshal(raw, &a) == nil && a.Type != "" {
			m.Action = &a
		}
	}
	if raw := fields["error"]; len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		m.Error = decodeError(raw)
	}
	if m.Type == "" {
		return nil, errFrame
	}
	return m, nil
}

// decodeError decodes the error of a result. An unusual form becomes the message of an unknown
// error.
func decodeError(raw json.RawMessage) *Error {
	var e struct {
		Code, Message *string
		Stacktrace    *string
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.Code == nil || e.Message == nil {
		return &Error{Code: "UNKNOWN", Message: string(raw)}
	}
	out := &Error{Code: *e.Code, Message: *e.Message}
	if e.Stacktrace != nil {
		out.Stacktrace = *e.Stacktrace
	}
	return out
}

// encode encodes one frame. It does not escape HTML, since program text has many < and &.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("a message could not be written: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Error is the error of an invocation on the wire.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Stacktrace is omitted if empty. Sandbar never sends one of its own.
	Stacktrace string `json:"stacktrace,omitempty"`
}

// Error returns the code and the message, as clients display them.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Error codes that clients know.
const (
	CodeFailed     = "invocation_failed"  // the function refused or failed
	CodeNotFound   = "function_not_found" // no such function
	CodeStopped    = "invocation_stopped" // the worker that ran it is gone
	CodeInvocation = "invocation_error"   // it could not be forwarded
	CodeEnqueue    = "enqueue_error"      // this server has no queues
	CodeNoSuch     = "NOT_FOUND"          // of the engine's own functions
	codeTrigger    = "trigger_type_not_found"
	codeConflict   = "FUNCTION_NAMESPACE_CONFLICT"
)

// serialization returns the error for data that a function cannot decode.
func serialization(text string) *Error {
	return &Error{Code: CodeFailed, Message: "serialization error: " + text}
}

func functionNotFound(id string) *Error {
	return &Error{Code: CodeNotFound, Message: "Function " + show(id) + " not found in namespace default."}
}

// show quotes and shortens a client's name for a message.
func show(id string) string {
	if len(id) <= 100 {
		return id
	}
	return sandbar.Quote(id, 100)
}
