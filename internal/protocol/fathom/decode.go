package fathom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// maxDepth is the deepest nesting of a message. The protocol needs two levels; the rest is for
// ignored fields.
const maxDepth = 32

// maxMembers bounds the commas outside of strings in a message. A default-sized environment has far
// fewer. Without the bound, a message of tiny members would use many times its own size in memory.
const maxMembers = 1 << 16

// maxID is the longest execution id, in bytes.
const maxID = 256

// request is a decoded message of a client.
type request struct {
	kind string // wire.Execute, wire.Cancel or wire.Ping
	id   string // empty for a ping
	run  execute
}

// execute has the fields of an execute message, validated against the ranges.
type execute struct {
	language string
	code     string
	stdin    string
	env      map[string]string
	limits   limits
	// traceparent is not validated; what has another type than text is ignored, as unknown fields are.
	traceparent string
}

// limits are in the protocol's own units; 0 means unset.
type limits struct {
	timeoutMS, memoryMB, cpuShares, outputBytes int64
}

// refusal is the error answer to a message. id is the execution's id, or "" if it could not be
// read.
type refusal struct {
	id      string
	code    Code
	message string
}

// invalid returns a refusal with INVALID_REQUEST.
func invalid(format string, args ...any) *refusal {
	return &refusal{code: wire.CodeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

// decode decodes one message: the result is a complete, valid request, or a refusal with the reason
// and the allowed values. Neither references msg. A refusal contains no code, no environment value
// and no standard input.
func decode(msg []byte, r *ranges) (request, *refusal) {
	fields, bad := decodeFields(msg)
	if bad != nil {
		return request{}, bad
	}
	id, badID := decodeID(fields["id"])
	req, bad := decodeRequest(fields, id, badID, r)
	if bad != nil {
		bad.id = id
		return request{}, bad
	}
	return req, nil
}

// decodeFields decodes the top-level object. Field names are compared exactly; the last of several
// fields with one name counts.
func decodeFields(msg []byte) (map[string]json.RawMessage, *refusal) {
	switch {
	case bytes.HasPrefix(msg, []byte("\xef\xbb\xbf")):
		return nil, invalid("the message begins with a byte order mark; a message is one JSON object and nothing else")
	case !utf8.Valid(msg):
		return nil, invalid("the message is not valid UTF-8")
	}
	if bad := checkShape(msg); bad != nil {
		return nil, bad
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(msg, &fields)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, invalid("the message is not valid JSON at byte %d; a message is one JSON object and nothing else", syntax.Offset)
	case err != nil || fields == nil:
		return nil, invalid("the message is not a JSON object")
	}
	return fields, nil
}

// checkShape refuses valid JSON that this protocol does not allow: deep nesting, very many members,
// and escapes of unpaired surrogates, which UTF-8 cannot represent and which encoding/json would
// replace silently. msg need not be valid JSON.
func checkShape(msg []byte) *refusal {
	depth, members, inString := 0, 0, false
	for i := 0; i < len(msg); i++ {
		switch c := msg[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			n, ok := strictjson.EscapeLength(msg[i:])
			if !ok {
				return invalid("the message has an unpaired surrogate in a string at byte %d", i+1)
			}
			i += n - 1
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return invalid("the message nests deeper than %d levels", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == ',':
			if members++; members > maxMembers {
				return invalid("the message has more than %d members", maxMembers)
			}
		}
	}
	return nil
}

// decodeID decodes the field id. For an unusable id it returns "" and a refusal.
func decodeID(raw json.RawMessage) (string, *refusal) {
	id, kind := stringOf(raw)
	switch {
	case kind == absent:
		return "", invalid("id is missing; an execution needs an id, a string of 1 to %d bytes", maxID)
	case kind == mistyped:
		return "", invalid("id must be a string of 1 to %d bytes, not %s", maxID, kindOf(raw))
	case id == "":
		return "", invalid("id is empty; it must be a string of 1 to %d bytes", maxID)
	case len(id) > maxID:
		return "", invalid("id has %d bytes; it may have 1 to %d", len(id), maxID)
	}
	return id, nil
}

func decodeRequest(fields map[string]json.RawMessage, id string, badID *refusal, r *ranges) (request, *refusal) {
	if bad := checkVersion(fields["v"]); bad != nil {
		return request{}, bad
	}
	kind, k := stringOf(fields["type"])
	switch {
	case k == absent:
		return request{}, invalid("type is missing; it is one of execute, cancel, ping")
	case k == mistyped:
		return request{}, invalid("type must be a string, one of execute, cancel, ping, not %s", kindOf(fields["type"]))
	}
	// The server does not use ts. It checks its type only, and accepts messages without it.
	if _, k := stringOf(fields["ts"]); k == mistyped {
		return request{}, invalid("ts must be a string, an ISO 8601 time, not %s", kindOf(fields["ts"]))
	}
	switch kind {
	case wire.Ping:
		return request{kind: kind}, nil
	case wire.Cancel:
		return request{kind: kind, id: id}, badID
	case wire.Execute:
		if badID != nil {
			return request{}, badID
		}
		run, bad := decodeExecute(fields, r)
		return request{kind: kind, id: id, run: run}, bad
	}
	return request{}, invalid("type %s is unknown; it is one of execute, cancel, ping", quote(kind))
}

func checkVersion(raw json.RawMessage) *refusal {
	v, problem := integerOf(raw)
	switch {
	case problem == isAbsent:
		return invalid("v is missing; this server speaks version %d of the protocol", Version)
	case problem == isMistyped || problem == isFraction:
		return invalid("v must be an integer; this server speaks version %d of the protocol", Version)
	case problem == isHuge || v != Version:
		return invalid("v is %s, a version that this server does not speak; it speaks version %d of the protocol", cut(raw), Version)
	}
	return nil
}

func decodeExecute(fields map[string]json.RawMessage, r *ranges) (execute, *refusal) {
	var e execute
	steps := []func() *refusal{
		func() (bad *refusal) { e.language, bad = requiredString(fields, "language"); return bad },
		func() *refusal { return r.checkLanguage(e.language) },
		func() (bad *refusal) { e.code, bad = requiredString(fields, "code"); return bad },
		func() *refusal { return checkSize("code", len(e.code), r.maxCode) },
		func() (bad *refusal) { e.stdin, bad = optionalString(fields, "stdin"); return bad },
		func() *refusal { return checkSize("stdin", len(e.stdin), r.maxStdin) },
		func() (bad *refusal) { e.env, bad = decodeEnv(fields["env"], r.maxEnv); return bad },
		func() (bad *refusal) { e.limits, bad = decodeLimits(fields["limits"], r); return bad },
	}
	for _, step := range steps {
		if bad := step(); bad != nil {
			return execute{}, bad
		}
	}
	e.traceparent, _ = stringOf(fields["traceparent"])
	return e, nil
}

func requiredString(fields map[string]json.RawMessage, name string) (string, *refusal) {
	if isNull(fields[name]) {
		return "", invalid("%s is missing; execute needs it, a string", name)
	}
	return optionalString(fields, name)
}

func optionalString(fields map[string]json.RawMessage, name string) (string, *refusal) {
	s, k := stringOf(fields[name])
	if k == mistyped {
		return "", invalid("%s must be a string, not %s", name, kindOf(fields[name]))
	}
	return s, nil
}

func checkSize(what string, size int, max int64) *refusal {
	if int64(size) > max {
		return invalid("%s has %d bytes; the limit is %d", what, size, max)
	}
	return nil
}

// decodeEnv decodes the environment. An error names the variable and never shows its value.
func decodeEnv(raw json.RawMessage, max int64) (map[string]string, *refusal) {
	if isNull(raw) {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil, invalid("env must be an object of strings, not %s", kindOf(raw))
	}
	env := make(map[string]string, len(fields))
	size := 0
	// sorted, so that the error is deterministic
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		value, k := stringOf(raw)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, invalid("env has the name %s; a name is not empty and holds neither '=' nor NUL", quote(name))
		case k != present:
			return nil, invalid("env.%s must be a string, not %s", quote(name), kindOf(raw))
		case strings.Contains(value, "\x00"):
			return nil, invalid("env.%s holds a NUL character, which an environment cannot", quote(name))
		}
		env[name] = value
		size += len(name) + len(value)
	}
	return env, checkSize("env (names and values together)", size, max)
}

func decodeLimits(raw json.RawMessage, r *ranges) (limits, *refusal) {
	if isNull(raw) {
		return limits{}, invalid("limits is missing; execute needs limits.timeout_ms (%s) and limits.memory_mb (%s)", r.timeoutMS, r.memoryMB)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return limits{}, invalid("limits must be an object, not %s", kindOf(raw))
	}
	var l limits
	for _, f := range []struct {
		name     string
		span     intRange
		into     *int64
		required bool
	}{
		{"timeout_ms", r.timeoutMS, &l.timeoutMS, true},
		{"memory_mb", r.memoryMB, &l.memoryMB, true},
		{"cpu_shares", r.cpuShares, &l.cpuShares, false},
		{"max_output_bytes", r.outputBytes, &l.outputBytes, false},
	} {
		raw := fields[f.name]
		n, problem := integerOf(raw)
		switch {
		case problem == isAbsent && !f.required:
		case problem == isAbsent:
			return limits{}, invalid("limits.%s is missing; it must be an integer from %s", f.name, f.span)
		case problem == isMistyped:
			return limits{}, invalid("limits.%s must be an integer from %s, not %s", f.name, f.span, kindOf(raw))
		case problem == isFraction:
			return limits{}, invalid("limits.%s is %s; it must be an integer from %s", f.name, cut(raw), f.span)
		case problem == isHuge || !f.span.holds(n):
			return limits{}, invalid("limits.%s is %s; the allowed range is %s", f.name, cut(raw), f.span)
		default:
			*f.into = n
		}
	}
	if l.cpuShares == r.defaultShares {
		l.cpuShares = 0
	}
	return l, nil
}

// presence is whether a field has a string.
type presence int

const (
	absent presence = iota // no such field, or null
	present
	mistyped
)

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func stringOf(raw json.RawMessage) (string, presence) {
	if isNull(raw) {
		return "", absent
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", mistyped
	}
	return s, present
}

// problem is the reason why a value is not an int64.
type problem int

const (
	isFine problem = iota
	isAbsent
	isMistyped
	isFraction
	isHuge // beyond an int64 or even a float64
)

// integerOf decodes an integer in any notation of JSON: 30000, 30000.0 and 3e4 are equal.
func integerOf(raw json.RawMessage) (int64, problem) {
	switch {
	case isNull(raw):
		return 0, isAbsent
	case raw[0] != '-' && (raw[0] < '0' || raw[0] > '9'):
		return 0, isMistyped
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, isFine
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || math.Abs(f) >= 1<<63:
		return 0, isHuge
	case f != math.Trunc(f):
		return 0, isFraction
	}
	return int64(f), isFine
}

// kindOf returns the name of a value's type, for errors.
func kindOf(raw json.RawMessage) string {
	if isNull(raw) {
		return "null"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// cut shortens a number for an error.
func cut(raw json.RawMessage) string {
	if len(raw) > 24 {
		return string(raw[:24]) + "…"
	}
	return string(raw)
}
