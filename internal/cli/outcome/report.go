package outcome

import (
	"encoding/base64"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/server/importpolicy"
)

// Report describes how a program ended, as JSON. The names are stable.
type Report struct {
	Outcome        string                `json:"outcome"`   // as sandbar.Outcome, or "error"
	ExitCode       *int                  `json:"exit_code"` // null unless the program ended by itself
	Signal         *int                  `json:"signal"`    // null unless a signal ended it
	DurationMS     float64               `json:"duration_ms"`
	CPUTimeMS      float64               `json:"cpu_time_ms"`
	PeakMemory     int64                 `json:"peak_memory_bytes"`
	Stdout         string                `json:"stdout"`
	StdoutEncoding string                `json:"stdout_encoding"` // "utf-8" or "base64"
	Stderr         string                `json:"stderr"`
	StderrEncoding string                `json:"stderr_encoding"`
	Truncated      bool                  `json:"truncated"`
	Driver         string                `json:"driver"`
	Boundary       driver.Boundary       `json:"boundary"`
	Enforced       *sandbar.Enforcements `json:"enforced"`
	Error          *ReportError          `json:"error"`                     // null unless the platform failed
	BlockedImports []string              `json:"blocked_imports,omitempty"` // for which the code was not run
}

// ReportError is why a program did not run.
type ReportError struct {
	Code    sandbar.Code `json:"code"`
	Field   string       `json:"field,omitempty"`
	Message string       `json:"message"`
}

// NewReport returns the Report of a program that caps' driver ran, with the output that out has
// captured.
func NewReport(r sandbar.Result, err error, out *Streams, caps driver.Caps) Report {
	p := Report{Driver: caps.Name, Boundary: caps.Boundary}
	p.Stdout, p.StdoutEncoding = encode(out.captured[0].Bytes())
	p.Stderr, p.StderrEncoding = encode(out.captured[1].Bytes())
	if err != nil {
		e := sandbar.AsError(err)
		p.Outcome = "error"
		p.Error = &ReportError{e.Code, e.Field, err.Error()}
		if blocked, ok := errors.AsType[*importpolicy.Blocked](err); ok {
			p.BlockedImports = blocked.Imports
		}
		return p
	}
	p.Outcome = r.Outcome.String()
	if r.Outcome == sandbar.Exited {
		p.ExitCode = &r.ExitCode
	}
	if r.Signal != 0 {
		p.Signal = &r.Signal
	}
	p.DurationMS, p.CPUTimeMS = milliseconds(r.Duration), milliseconds(r.CPUTime)
	p.PeakMemory = r.PeakMemory
	p.Truncated = r.Outcome == sandbar.OutputLimit || r.DroppedBytes > 0 || len(out.Cut()) > 0
	p.Enforced = &r.Enforced
	return p
}

// milliseconds returns a duration in milliseconds, rounded down to a microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// encode returns output as UTF-8, or if it is not UTF-8, as base64.
func encode(b []byte) (text, encoding string) {
	if utf8.Valid(b) {
		return string(b), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}
