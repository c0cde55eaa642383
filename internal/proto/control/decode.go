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
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/near"
	"github.com/sandbar-dev/sandbar/internal/proto/control/wire"
	"github.com/sandbar-dev/sandbar/internal/surrogate"
)

const (
	maxBody  = 1 << 20 // of a request, in bytes
	maxName  = 128     // of a sandbox, in bytes
	bodyTime = 30 * time.Second

	// The length of a sandbox's own secret. The least is what cannot be guessed
	// by asking, if it is random.
	minSecret, maxSecret = 16, 4096
)

// invalid is the error for a field.
func invalid(field, message, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix}
}

// readBody reads a request's body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// What cannot have a deadline is no connection, and ends by itself. The
	// deadline is for the body alone: one that passes later would look like the
	// client's leaving. Of a body that was not read to its end the server tries
	// to read the rest, so there the deadline stays.
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, sandbar.Errorf(sandbar.TooLarge, "the body is larger than %d bytes, which is all that is read", maxBody)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the body could not be read to its end: %w", err)
	}
	control.SetReadDeadline(time.Time{})
	return b, nil
}

// field is a member that an object may have. Its set gets the value's JSON,
// never null, and says what is wrong with it: "must be a string".
type field struct {
	name string
	set  func(raw json.RawMessage) error
}

// decode reads one object. null is the same as left out.
func decode(where string, raw []byte, fields ...field) error {
	if !utf8.Valid(raw) {
		return invalid("", "the body is not valid UTF-8", "")
	}
	if at := surrogate.Unpaired(raw); at > 0 {
		return invalid("", fmt.Sprintf("the body has an unpaired surrogate in a string at byte %d", at), "send text")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return notJSON(where, err)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return notJSON(where, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return notJSON(where, err)
		}
		if seen[name] {
			return invalid(where+name, sandbar.Quote(where+name, 80)+" is given twice", "give it once")
		}
		seen[name] = true
		if err := setField(where, name, value, fields); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // "}"
		return notJSON(where, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("", "the body has something after its JSON object", "send one JSON object")
	}
	return nil
}

func notJSON(where string, err error) error {
	what := "the body"
	if where != "" {
		what = strings.TrimSuffix(where, ".")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return invalid("", fmt.Sprintf("%s is not valid JSON at byte %d", what, syntax.Offset), "send one JSON object")
	}
	return invalid(strings.TrimSuffix(where, "."), what+" is not a JSON object", "send one JSON object")
}

func setField(where, name string, value json.RawMessage, fields []field) error {
	var names []string
	for _, f := range fields {
		if f.name != name {
			names = append(names, f.name)
			continue
		}
		if string(value) == "null" {
			return nil
		}
		err := f.set(value)
		if _, ok := errors.AsType[*sandbar.Error](err); ok || err == nil {
			return err
		}
		return invalid(where+name, where+name+" "+err.Error(), "")
	}
	fix := "known are " + strings.Join(names, ", ")
	if meant := near.Name(name, names); meant != "" {
		fix = "did you mean " + where + meant + "?"
	}
	return invalid(where+name, sandbar.Quote(where+name, 80)+" is not known", fix)
}

// value is a field that encoding/json reads.
func value[T any](name, must string, at *T) field {
	return field{name, func(raw json.RawMessage) error {
		if json.Unmarshal(raw, at) != nil {
			return errors.New("must be " + must)
		}
		return nil
	}}
}

func text(name string, at *string) field   { return value(name, "a string", at) }
func truth(name string, at *bool) field    { return value(name, "true or false", at) }
func list(name string, at *[]string) field { return value(name, "a list of strings", at) }

// texts is a field that maps names to strings.
func texts(name string, at *map[string]string) field {
	return field{name, func(raw json.RawMessage) error {
		m := map[string]string{}
		// Names as they are given; a duplicate would hide one of two values.
		return decodeMap(name, raw, m, at)
	}}
}

func decodeMap(name string, raw json.RawMessage, m map[string]string, at *map[string]string) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("must be an object of strings")
	}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var v any
		if err != nil || !ok || d.Decode(&v) != nil {
			return errors.New("must be an object of strings")
		}
		s, ok := v.(string)
		if !ok {
			return invalid(name, name+"."+sandbar.Quote(key, 40)+" must be a string", "")
		}
		if _, twice := m[key]; twice {
			return invalid(name, name+"."+sandbar.Quote(key, 40)+" is given twice", "give it once")
		}
		m[key] = s
	}
	*at = m
	return nil
}

// amount is a field with a number or "unlimited".
func amount(name, of string, whole bool, at *wire.Amount) field {
	kind := "a number of " + of
	if whole {
		kind = "a whole number of " + of
	}
	return field{name, func(raw json.RawMessage) error {
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
	err := decode("", raw,
		text("image", &c.Image), text("name", &c.Name), texts("env", &c.Env), texts("labels", &c.Labels),
		field{"limits", func(raw json.RawMessage) (err error) { c.Limits, err = decodeLimits(raw); return err }},
		text("secret", &c.Secret), amount("idle_timeout", "seconds", false, &c.IdleTimeout), truth("allow_degraded", &c.AllowDegraded),
		truth("cold", &c.Cold),
		text("network", (*string)(&c.Network)))
	if err == nil {
		err = errors.Join(checkName(c.Name), checkSecret(c.Secret))
	}
	return c, err
}

func decodeLimits(raw json.RawMessage) (*wire.Limits, error) {
	var l wire.Limits
	return &l, decode("limits.", raw,
		amount("memory", "bytes", true, &l.Memory), amount("cpus", "processors", false, &l.CPUs), amount("cpu_shares", "shares", true, &l.CPUShares),
		amount("pids", "processes", true, &l.PIDs), amount("disk", "bytes", true, &l.Disk), amount("inodes", "inodes", true, &l.Inodes),
		amount("files", "files", true, &l.Files), amount("timeout", "seconds", false, &l.Timeout), amount("output", "bytes", true, &l.Output))
}

func decodeExec(raw []byte) (wire.Exec, error) {
	var x wire.Exec
	return x, decode("", raw, list("args", &x.Args), texts("env", &x.Env), text("dir", &x.Dir),
		amount("timeout", "seconds", false, &x.Timeout), amount("output", "bytes", true, &x.Output), truth("stdin", &x.Stdin))
}

// checkName checks a sandbox's name: it is shown to people, and stands in paths.
func checkName(s string) error {
	_, err := sandbar.ParseID(s)
	if len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r == '/' || !unicode.IsGraphic(r) }) || s == "." || s == ".." || err == nil {
		return invalid("name", fmt.Sprintf("name %s is not allowed", sandbar.Quote(s, 40)),
			fmt.Sprintf("a name has at most %d bytes of visible characters, no \"/\", and not the form of an id", maxName))
	}
	return nil
}

// checkSecret says what is wrong with a secret without showing it.
func checkSecret(s string) error {
	if s == "" {
		return nil
	}
	if len(s) < minSecret || len(s) > maxSecret || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return invalid("secret", "secret is not a token", fmt.Sprintf("it must have %d to %d visible ASCII characters", minSecret, maxSecret))
	}
	return nil
}
