package wire

import (
	"time"

	"github.com/sandbar-dev/sandbar"
)

// CreateContext is the body of POST /sandboxes/{id}/contexts. All fields are optional.
type CreateContext struct {
	Language string            `json:"language,omitempty"` // default "python"
	Dir      string            `json:"dir,omitempty"`      // default sandbar.DefaultDir
	Env      map[string]string `json:"env,omitempty"`
}

// Context describes a context: an interpreter that runs one cell after another.
type Context struct {
	ID             string    `json:"id"`
	Language       string    `json:"language"`
	Dir            string    `json:"dir"`
	Created        time.Time `json:"created_at"`
	ExecutionCount int       `json:"execution_count"` // cells since its interpreter was started
	Busy           bool      `json:"busy"`            // a cell runs or waits
}

// Contexts is the response to GET /sandboxes/{id}/contexts.
type Contexts struct {
	Contexts []Context `json:"contexts"`
}

// Cell is the body of POST /sandboxes/{id}/contexts/{c}/run. The response is a stream of Event in
// JSON, one a line.
type Cell struct {
	Code    string            `json:"code"`
	Env     map[string]string `json:"env,omitempty"`     // for this cell only
	Timeout Amount            `json:"timeout,omitempty"` // seconds; default the sandbox's
	Output  Amount            `json:"output,omitempty"`  // bytes of outputs and results; default the sandbox's
}

// The types of an Event. EventStarted is the first; EventEnd or EventFailed is the last. A client
// ignores types that it does not have.
const (
	EventStarted   = "started"   // ExecutionCount
	EventStdout    = "stdout"    // Text
	EventStderr    = "stderr"    // Text
	EventResult    = "result"    // Display
	EventError     = "error"     // CellError
	EventKeepalive = "keepalive" // nothing else has happened for a while
	EventEnd       = "end"       // End, ExecutionCount
	EventFailed    = "failed"    // Failure: the platform failed
)

// Event is one event of a cell. Text is also the text of EventStdout and EventStderr, in which
// bytes that are not UTF-8 are U+FFFD.
type Event struct {
	Type           string `json:"type"`
	ExecutionCount int    `json:"execution_count,omitempty"`
	sandbar.Display
	sandbar.CellError
	*End
	Failure *ErrorDetail `json:"failure,omitempty"`
}

// End is the end of a cell.
type End struct {
	Outcome    string  `json:"outcome"` // as sandbar.Outcome; "exited" if the cell ended by itself
	Failed     bool    `json:"failed"`  // there was an EventError
	Lost       bool    `json:"lost"`    // the interpreter has ended, and its variables are lost
	DurationMS float64 `json:"duration_ms"`
}
