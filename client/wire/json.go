package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Create is the body of POST /sandboxes. All fields are optional.
type Create struct {
	Image         string            `json:"image,omitempty"` // default sandbar.ImageHost
	Name          string            `json:"name,omitempty"`  // for display; need not be unique
	Env           map[string]string `json:"env,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Limits        *Limits           `json:"limits,omitempty"`
	Secret        string            `json:"secret,omitempty"`       // a token for this sandbox only
	IdleTimeout   Amount            `json:"idle_timeout,omitempty"` // seconds
	AllowDegraded bool              `json:"allow_degraded,omitempty"`
	Network       sandbar.Network   `json:"network,omitempty"` // default sandbar.NetworkNone
	// default: the operator's; must be one that the operator allows
	Driver string `json:"driver,omitempty"`
	Cold   bool   `json:"cold,omitempty"` // see sandbar.Spec
}

// Limits are those of a sandbox, in bytes, counts, CPUs and seconds. Zero means the operator's
// default; for Timeout and Output it means the operator's maximum: they bound one command, and
// long-lived sandboxes are for long commands.
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

// LimitsOf converts the platform's limits to the API's.
func LimitsOf(l sandbar.Limits) Limits {
	return Limits{Memory: Amount(l.Memory), CPUs: Amount(l.CPUs), CPUShares: Amount(l.CPUShares), PIDs: Amount(l.PIDs), Disk: Amount(l.Disk),
		Inodes: Amount(l.Inodes), Files: Amount(l.Files), Timeout: Seconds(l.Timeout), Output: Amount(l.Output)}
}

// Limits converts the API's limits to the platform's.
func (l Limits) Limits() sandbar.Limits {
	return sandbar.Limits{Memory: int64(l.Memory), CPUs: float64(l.CPUs), CPUShares: int64(l.CPUShares), PIDs: int64(l.PIDs), Disk: int64(l.Disk),
		Inodes: int64(l.Inodes), Files: int64(l.Files), Timeout: l.Timeout.Duration(), Output: int64(l.Output)}
}

// Amount is a number from 0, or Unlimited, which is "unlimited" in JSON.
type Amount float64

// Unlimited means no bound, or for a time: never.
const Unlimited Amount = sandbar.Unlimited

// the largest Amount; all whole numbers up to it are exact in JSON
const maxAmount = 1 << 53

// unlimitedWord is the text of Unlimited.
const unlimitedWord = "unlimited"

// Seconds converts a duration to an Amount. A negative one is Unlimited.
func Seconds(d time.Duration) Amount {
	if d < 0 {
		return Unlimited
	}
	return Amount(d.Seconds())
}

// Duration converts an Amount of seconds, clamped to the largest Duration.
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

// UnmarshalJSON reads a number from 0 or "unlimited".
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

// The states of a Sandbox.
const (
	StateRunning = "running"
	StatePaused  = "paused"
)

// Sandbox describes a sandbox. Running and Enforced are those of a live one, DiskBytes of a paused
// one.
type Sandbox struct {
	ID          sandbar.ID           `json:"id"`
	UUID        string               `json:"uuid"` // ID as a UUID
	Name        string               `json:"name"`
	Tenant      string               `json:"tenant,omitempty"` // absent for the default tenant
	Client      string               `json:"client,omitempty"` // name of the client that created it; absent for the daemon's own token
	Image       string               `json:"image"`
	Driver      string               `json:"driver"`
	Created     time.Time            `json:"created_at"`
	LastUsed    time.Time            `json:"last_used_at"`
	IdleTimeout Amount               `json:"idle_timeout"`        // seconds
	Expires     time.Time            `json:"expires_at,omitzero"` // of a live one: the end of the operator's max_lifetime; zero for no end
	Running     int                  `json:"running"`             // programs
	Labels      map[string]string    `json:"labels"`
	Limits      Limits               `json:"limits"`
	Enforced    sandbar.Enforcements `json:"enforced"`
	State       string               `json:"state"`                // StateRunning or StatePaused
	Paused      time.Time            `json:"paused_at,omitzero"`   // of a paused one
	DiskBytes   int64                `json:"disk_bytes,omitempty"` // space that a paused one takes on disk
}

// Renew is the body of POST /sandboxes/{id}/renew. The answer is the Sandbox.
type Renew struct {
	IdleTimeout Amount `json:"idle_timeout,omitempty"` // seconds; default as before
}

// Metrics is what a sandbox uses at one moment. A number that the driver or the host does not count
// is 0.
type Metrics struct {
	Time      time.Time `json:"time"`         // of the measurement
	CPUTimeMS float64   `json:"cpu_time_ms"`  // processor time of all programs since the creation
	Memory    int64     `json:"memory_bytes"` // what counts towards limits.memory
	Cache     int64     `json:"cache_bytes"`  // the part of memory in the page cache
	Files     int64     `json:"file_bytes"`   // the part of cache in files that programs have written
	Processes int64     `json:"processes"`    // processes and threads, those of the sandbox's agent included
}

// Notification is an event of GET /v1/events: something that happened to a sandbox. It has no code,
// arguments, environment, paths or output.
type Notification struct {
	ID      string     `json:"id"`   // for after and Last-Event-ID
	Type    string     `json:"type"` // one of engine.EventTypes; a client ignores those that it does not have
	Time    time.Time  `json:"time"`
	Sandbox sandbar.ID `json:"sandbox,omitempty"` // absent if none was made
	Tenant  string     `json:"tenant,omitempty"`  // absent for the default tenant
	Client  string     `json:"client,omitempty"`  // name of the client that caused it; absent for the daemon's own token and for none
	From    sandbar.ID `json:"from,omitempty"`    // of sandbox.forked: the source
	Reason  string     `json:"reason,omitempty"`  // of sandbox.ended: one of engine.EndReasons
	Program string     `json:"program,omitempty"` // "p1" is the process with that id, "x1" a program whose client waits
	Context string     `json:"context,omitempty"` // of a cell
	// Outcome, ExitCode, Signal and Failed are those of a program, an execution or a cell that has
	// ended. ExitCode is absent unless the program exited by itself. Failed: the cell raised an
	// error.
	Outcome  string       `json:"outcome,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Signal   *int         `json:"signal,omitempty"`
	Failed   bool         `json:"failed,omitempty"`
	Action   string       `json:"action,omitempty"` // of refused: what was asked, as in the audit log
	Code     sandbar.Code `json:"code,omitempty"`   // of refused, and of an end by a failure of the platform
	Missed   *int64       `json:"missed,omitempty"` // of gap: the number of events; absent if it is unknown
}

// Fork is the body of POST /sandboxes/{id}/fork. The answer is a List of the copies.
type Fork struct {
	Count int `json:"count,omitempty"` // 1 to 100; default 1
}

// List is the response to GET /sandboxes, and to a fork.
type List struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	// Next, if not "", is the parameter after of the next page.
	Next string `json:"next,omitempty"`
}

// Preview is a port of a sandbox with a URL of its own. It is the body and the answer of POST
// /sandboxes/{id}/previews, where URL is only in the answer.
type Preview struct {
	Port int `json:"port"`
	// Public: everybody who knows the URL may open it. Otherwise the URL has a token, which a browser
	// keeps as a cookie.
	Public bool   `json:"public"`
	URL    string `json:"url,omitempty"`
}

// Previews is the response to GET /sandboxes/{id}/previews.
type Previews struct {
	Previews []Preview `json:"previews"` // sorted by port
}

// FileEvent is a line of GET /sandboxes/{id}/watch: a change, or the error that ends the watch.
type FileEvent struct {
	Op    sandbar.FileOp `json:"op,omitempty"`
	Path  string         `json:"path"` // relative to the watched directory; "" is that directory
	Error *ErrorDetail   `json:"error,omitempty"`
}

// Entry is one entry of a directory in a sandbox.
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

// Dir is the response to GET /sandboxes/{id}/dir: a page of a directory, in the order of names.
// More says that further entries follow.
type Dir struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`
}

// Error is the body of a Failed frame, and a part of a Problem.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// MediaProblem is the media type of a Problem (RFC 9457).
const MediaProblem = "application/problem+json"

// Problem is the body of a response that is not 2xx. The members beside those of Error are the
// standard ones of MediaProblem; they repeat the same facts.
type Problem struct {
	Error
	Type   string `json:"type"`   // "urn:sandbar:error:" and the code
	Title  string `json:"title"`  // the code in words
	Status int    `json:"status"` // of the response
	Detail string `json:"detail"` // the message
	// Request is the value of RequestHeader: the id of the request in the daemon's log and traces.
	Request string `json:"request,omitempty"`
}

// RequestHeader is the header of a response with the id of its request.
const RequestHeader = "X-Request-Id"

// ProblemOf converts an error for a response with a status.
func ProblemOf(status int, err error) Problem {
	e := ErrorOf(err)
	return Problem{Error: e, Type: "urn:sandbar:error:" + string(e.Error.Code), Title: strings.ReplaceAll(string(e.Error.Code), "_", " "),
		Status: status, Detail: e.Error.Message}
}

// ErrorDetail is a *sandbar.Error. Code, message and fix are always present, field only if one
// field is wrong.
type ErrorDetail struct {
	Code    sandbar.Code `json:"code"`
	Message string       `json:"message"`
	Fix     string       `json:"fix"`
	Field   string       `json:"field,omitempty"`
}

// ErrorOf converts an error. The message contains the text of its cause.
func ErrorOf(err error) Error {
	e := *sandbar.AsError(err)
	d := ErrorDetail{Code: e.Code, Fix: e.Fix, Field: e.Field}
	e.Fix = ""
	d.Message = e.Error()
	return Error{d}
}

// Err converts it back to an error.
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
	// Stdin frames follow; otherwise the input is empty
	Stdin bool `json:"stdin,omitempty"`
	// Terminal gives the command a terminal of this size. Resize frames may follow. Without Timeout
	// and Output the command has no such limit.
	Terminal *TerminalSize `json:"terminal,omitempty"`
}

// TerminalSize is the size of a terminal in characters, each 1 to sandbar.MaxTerminalSize.
type TerminalSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Result is the result of a command.
type Result struct {
	Outcome    string  `json:"outcome"`   // as sandbar.Outcome
	ExitCode   *int    `json:"exit_code"` // null unless the program exited by itself
	Signal     *int    `json:"signal"`    // null unless a signal ended the program
	DurationMS float64 `json:"duration_ms"`
	CPUTimeMS  float64 `json:"cpu_time_ms"`
	PeakMemory int64   `json:"peak_memory_bytes"`
	Truncated  bool    `json:"truncated"` // output beyond the output limit was discarded
}

// ResultOf converts a result.
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
