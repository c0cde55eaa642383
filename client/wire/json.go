package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Create is the body of POST /sandboxes. All of it may be left out.
type Create struct {
	Image         string            `json:"image,omitempty"` // default sandbar.ImageHost
	Name          string            `json:"name,omitempty"`  // a person's name for it; need not be the only one
	Env           map[string]string `json:"env,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Limits        *Limits           `json:"limits,omitempty"`
	Secret        string            `json:"secret,omitempty"`       // a token for this sandbox alone
	IdleTimeout   Amount            `json:"idle_timeout,omitempty"` // seconds
	AllowDegraded bool              `json:"allow_degraded,omitempty"`
	Network       sandbar.Network   `json:"network,omitempty"` // default sandbar.NetworkNone
	Driver        string            `json:"driver,omitempty"`  // default the operator's; one that the operator allows
	Cold          bool              `json:"cold,omitempty"`    // see sandbar.Spec
}

// Limits are those of a sandbox: bytes, counts, processors and seconds. Zero is
// the operator's default, except that Timeout and Output then are the most that
// the operator allows: they are of one command, and a sandbox that lives long is
// there for long ones.
type Limits struct {
	Memory    Amount `json:"memory,omitempty"`
	CPUs      Amount `json:"cpus,omitempty"`
	CPUShares Amount `json:"cpu_shares,omitempty"`
	PIDs      Amount `json:"pids,omitempty"`
	Disk      Amount `json:"disk,omitempty"`
	Inodes    Amount `json:"inodes,omitempty"`
	Files     Amount `json:"files,omitempty"`
	Timeout   Amount `json:"timeout,omitempty"`
	Output    Amount `json:"output,omitempty"`
}

// LimitsOf are the limits of the platform as they are sent.
func LimitsOf(l sandbar.Limits) Limits {
	return Limits{Memory: Amount(l.Memory), CPUs: Amount(l.CPUs), CPUShares: Amount(l.CPUShares), PIDs: Amount(l.PIDs), Disk: Amount(l.Disk),
		Inodes: Amount(l.Inodes), Files: Amount(l.Files), Timeout: Seconds(l.Timeout), Output: Amount(l.Output)}
}

// Limits are the limits that were sent, as the platform has them.
func (l Limits) Limits() sandbar.Limits {
	return sandbar.Limits{Memory: int64(l.Memory), CPUs: float64(l.CPUs), CPUShares: int64(l.CPUShares), PIDs: int64(l.PIDs), Disk: int64(l.Disk),
		Inodes: int64(l.Inodes), Files: int64(l.Files), Timeout: l.Timeout.Duration(), Output: int64(l.Output)}
}

// Amount is a number that is not negative, or Unlimited, which JSON has as the
// word "unlimited".
type Amount float64

// Unlimited is no bound, or for a time: never.
const Unlimited Amount = sandbar.Unlimited

// The largest Amount: every whole number up to it is exact in JSON.
const maxAmount = 1 << 53

// unlimitedWord is how Unlimited is written.
const unlimitedWord = "unlimited"

// Seconds is a duration as an Amount. A negative one is Unlimited.
func Seconds(d time.Duration) Amount {
	if d < 0 {
		return Unlimited
	}
	return Amount(d.Seconds())
}

// Duration is an Amount of seconds, at most what a Duration can hold.
func (a Amount) Duration() time.Duration {
	if a < 0 {
		return sandbar.Unlimited
	}
	return time.Duration(min(float64(a)*float64(time.Second), math.MaxInt64/2))
}

// MarshalJSON writes a number or "unlimited".
func (a Amount) MarshalJSON() ([]byte, error) {
	if a < 0 {
		return []byte(`"` + unlimitedWord + `"`), nil
	}
	return strconv.AppendFloat(nil, float64(a), 'f', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Amount) UnmarshalJSON(b []byte) error {
	if string(b) == `"`+unlimitedWord+`"` {
		*a = Unlimited
		return nil
	}
	var f float64
	if err := json.Unmarshal(b, &f); err != nil || f < 0 || f > maxAmount || string(b) == "null" {
		return errors.New("is not a number from 0, or \"" + unlimitedWord + "\"")
	}
	*a = Amount(f)
	return nil
}

// Sandbox describes a live sandbox.
type Sandbox struct {
	ID          sandbar.ID           `json:"id"`
	UUID        string               `json:"uuid"` // ID in its second spelling
	Name        string               `json:"name"`
	Image       string               `json:"image"`
	Driver      string               `json:"driver"`
	Created     time.Time            `json:"created_at"`
	LastUsed    time.Time            `json:"last_used_at"`
	IdleTimeout Amount               `json:"idle_timeout"` // seconds
	Running     int                  `json:"running"`      // programs
	Labels      map[string]string    `json:"labels"`
	Limits      Limits               `json:"limits"`
	Enforced    sandbar.Enforcements `json:"enforced"`
}

// List is the answer to GET /sandboxes.
type List struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// Entry is one name in a directory of a sandbox.
type Entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"` // TypeFile, TypeDir, TypeLink or TypeOther
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // permission bits in octal, such as "0644"
	Modified time.Time `json:"modified_at"`
}

// The types of an Entry.
const (
	TypeFile  = "file"
	TypeDir   = "directory"
	TypeLink  = "link"
	TypeOther = "other"
)

// Dir is the answer to GET /sandboxes/{id}/dir: a page of a directory, in the
// order of names. More tells that there is another after the last of them.
type Dir struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`
}

// Error is the body of an answer that is not 2xx, and of a frame Failed.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is a *sandbar.Error as it is sent. Code, message and fix are always there, field where
// a field is at fault.
type ErrorDetail struct {
	Code    sandbar.Code `json:"code"`
	Message string       `json:"message"`
	Fix     string       `json:"fix"`
	Field   string       `json:"field,omitempty"`
}

// ErrorOf is an error as it is sent. The text of its cause is in the message.
func ErrorOf(err error) Error {
	e := *sandbar.AsError(err)
	d := ErrorDetail{Code: e.Code, Fix: e.Fix, Field: e.Field}
	e.Fix = ""
	d.Message = e.Error()
	return Error{d}
}

// Err is the error that was sent.
func (e Error) Err() error {
	return &sandbar.Error{Code: e.Error.Code, Field: e.Error.Field, Message: e.Error.Message, Fix: e.Error.Fix}
}

// Exec is the first frame of a command.
type Exec struct {
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`     // default sandbar.DefaultDir
	Timeout Amount            `json:"timeout,omitempty"` // seconds; default the sandbox's
	Output  Amount            `json:"output,omitempty"`  // bytes; default the sandbox's
	Stdin   bool              `json:"stdin,omitempty"`   // whether frames Stdin follow; else the input is empty
}

// Result is how a command ended.
type Result struct {
	Outcome    string  `json:"outcome"`   // as sandbar.Outcome
	ExitCode   *int    `json:"exit_code"` // null unless the program ended by itself
	Signal     *int    `json:"signal"`    // null unless a signal ended it
	DurationMS float64 `json:"duration_ms"`
	CPUTimeMS  float64 `json:"cpu_time_ms"`
	PeakMemory int64   `json:"peak_memory_bytes"`
	Truncated  bool    `json:"truncated"` // output was lost at the output limit
}

// ResultOf is a result as it is sent.
func ResultOf(r sandbar.Result) Result {
	w := Result{Outcome: r.Outcome.String(), DurationMS: float64(r.Duration.Microseconds()) / 1000, CPUTimeMS: float64(r.CPUTime.Microseconds()) / 1000,
		PeakMemory: r.PeakMemory, Truncated: r.Outcome == sandbar.OutputLimit || r.DroppedBytes > 0}
	if r.Outcome == sandbar.Exited {
		w.ExitCode = &r.ExitCode
	}
	if r.Signal != 0 {
		w.Signal = &r.Signal
	}
	return w
}
