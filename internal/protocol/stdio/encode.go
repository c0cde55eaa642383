package stdio

import (
	"bytes"
	"encoding/json"
)

// The responses, with their fields in the order of the protocol's text.

type shellResponse struct {
	Type     string  `json:"type"`
	ID       *string `json:"id"`
	Error    *string `json:"error,omitempty"`
	Stdout   string  `json:"stdout"`
	Stderr   string  `json:"stderr"`
	ExitCode *int    `json:"exit_code"`
	TimedOut bool    `json:"timed_out"`
}

type writeResponse struct {
	Type    string  `json:"type"`
	ID      *string `json:"id"`
	Success bool    `json:"success"`
	Error   *string `json:"error"`
}

type readResponse struct {
	Type    string  `json:"type"`
	ID      *string `json:"id"`
	Content string  `json:"content"`
	Success bool    `json:"success"`
	Error   *string `json:"error"`
}

type resetResponse struct {
	Type    string  `json:"type"`
	ID      *string `json:"id"`
	Success bool    `json:"success"`
	Error   *string `json:"error,omitempty"`
}

type statusResponse struct {
	Type        string  `json:"type"`
	ID          *string `json:"id"`
	Uptime      int64   `json:"uptime_ms"`
	MemoryUsed  int64   `json:"memory_used_bytes"`
	MemoryLimit int64   `json:"memory_limit_bytes"`
	Ready       bool    `json:"ready"`
	Error       *string `json:"error,omitempty"`
}

type errorResponse struct {
	Type  string  `json:"type"`
	ID    *string `json:"id"`
	Error string  `json:"error"`
}

// failed returns the error response in the form of a type.
func failed(kind string, id *string, text string) any {
	switch kind {
	case typeShell:
		return &shellResponse{Type: kind, ID: id, Error: &text}
	case typeWrite:
		return &writeResponse{Type: kind, ID: id, Error: &text}
	case typeRead:
		return &readResponse{Type: kind, ID: id, Error: &text}
	case typeReset:
		return &resetResponse{Type: kind, ID: id, Error: &text}
	}
	return &errorResponse{Type: typeError, ID: id, Error: text}
}

// encode encodes a response as a line of valid UTF-8.
func encode(response any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(response); err != nil {
		panic(err) // not possible for structs of strings and numbers
	}
	return b.Bytes()
}
