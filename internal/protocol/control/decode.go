package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

const (
	maxBody  = 1 << 20 // of a request, in bytes
	maxName  = 128     // of a sandbox, in bytes
	bodyTime = 30 * time.Second

	// the name of a request's body in errors
	body = "the body"

	// Length of a sandbox's own secret. A random secret of the minimum length cannot be guessed
	// over the network.
	minSecret, maxSecret = 16, 4096
)

// invalid returns the error for a field.
func invalid(field, message, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix}
}

// readBody reads a request's body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readSized(w, r, maxBody)
}

// readSized reads a request's body of at most most bytes.
func readSized(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	// A connection without deadline support is a test's and ends by itself. The deadline applies to
	// the body only: afterwards it would look as if the client had left. If the body was not read
	// to its end, the server will try to read the rest, so the deadline stays.
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, sandbar.Errorf(sandbar.TooLarge, "the body is larger than %d bytes, which is all that is read", most)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the body could not be read to its end: %w", err)
	}
	control.SetReadDeadline(time.Time{})
	return b, nil
}

// amount is a field with a number or "unlimited".
func amount(name, of string, whole bool, at *wire.Amount) strictjson.Field {
	kind := "a number of " + of
	if whole {
		kind = "a whole number of " + of
	}
	return strictjson.Field{Name: name, Set: func(raw json.RawMessage) error {
		var a wire.Amount
		if err := a.UnmarshalJSON(raw); err != nil || whole && float64(a) != math.Trunc(float64(a)) {
			return errors.New("must be " + kind + ", or \"unlimited\"")
		}
		*at = a
		return nil
	}}
}

func decodeCreate(raw []byte) (wire.Create, error) {
	var c wire.Create
	if len(bytes.TrimSpace(raw)) == 0 {
		return c, nil
	}
	err := strictjson.Object(body, raw,
		strictjson.Text("image", &c.Image), strictjson.Text("name", &c.Name), strictjson.Texts("env", &c.Env), strictjson.Texts("labels", &c.Labels),
		strictjson.Field{Name: "limits", Set: func(raw json.RawMessage) (err error) { c.Limits, err = decodeLimits(raw); return err }},
		strictjson.Text("secret", &c.Secret), amount("idle_timeout", "seconds", false, &c.IdleTimeout), strictjson.Truth("allow_degraded", &c.AllowDegraded),
		strictjson.Truth("cold", &c.Cold),
		strictjson.Text("network", (*string)(&c.Network)), strictjson.Text("driver", &c.Driver))
	if err == nil {
		err = errors.Join(checkName(c.Name), checkSecret(c.Secret))
	}
	return c, err
}

func decodeLimits(raw json.RawMessage) (*wire.Limits, error) {
	var l wire.Limits
	return &l, strictjson.Member("limits", raw,
		amount("memory", "bytes", true, &l.Memory), amount("cpus", "processors", false, &l.CPUs), amount("cpu_shares", "shares", true, &l.CPUShares),
		amount("pids", "processes", true, &l.PIDs), amount("disk", "bytes", true, &l.Disk), amount("inodes", "inodes", true, &l.Inodes),
		amount("files", "files", true, &l.Files), amount("timeout", "seconds", false, &l.Timeout), amount("output", "bytes", true, &l.Output))
}

func decodeExec(raw []byte) (wire.Exec, error) {
	var x wire.Exec
	return x, strictjson.Object(body, raw, strictjson.List("args", &x.Args), strictjson.Texts("env", &x.Env), strictjson.Text("dir", &x.Dir),
		amount("timeout", "seconds", false, &x.Timeout), amount("output", "bytes", true, &x.Output), strictjson.Truth("stdin", &x.Stdin),
		strictjson.Field{Name: "terminal", Set: func(raw json.RawMessage) (err error) { x.Terminal, err = decodeSize(raw); return err }})
}

func decodeSize(raw json.RawMessage) (*wire.TerminalSize, error) {
	var s wire.TerminalSize
	return &s, strictjson.Member("terminal", raw,
		strictjson.Value("rows", "a whole number", &s.Rows), strictjson.Value("cols", "a whole number", &s.Cols))
}

// checkName checks a sandbox's name, which is displayed and used in paths.
func checkName(s string) error {
	_, err := sandbar.ReadID(s)
	if len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r == '/' || !unicode.IsGraphic(r) }) || s == "." || s == ".." || err == nil {
		return invalid("name", fmt.Sprintf("name %s is not allowed", sandbar.Quote(s, 40)),
			fmt.Sprintf("a name has at most %d bytes of visible characters, no \"/\", and not the form of an id", maxName))
	}
	return nil
}

// checkSecret checks a secret. Its errors do not show it.
func checkSecret(s string) error {
	if s == "" {
		return nil
	}
	if len(s) < minSecret || len(s) > maxSecret || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return invalid("secret", "secret is not a token", fmt.Sprintf("it must have %d to %d visible ASCII characters", minSecret, maxSecret))
	}
	return nil
}
