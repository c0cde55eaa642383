package fathom

import (
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

// Version is the protocol version of this package.
const Version = wire.Version

// Status is the state of an execution in a status message.
type Status = wire.Status

// An execID is a client's id of an execution, as text and as an encoded JSON string, so that it is
// encoded only once. The zero execID is no id; messages then omit the field.
type execID struct {
	name    string
	encoded []byte
}

func newExecID(name string) execID {
	if name == "" {
		return execID{}
	}
	return execID{name, appendString(nil, name)}
}

// Each message type has a function that appends it to a buffer. They use no reflection: output
// passes through at the speed of a copy.

func appendHead(b []byte, kind string, id execID, now time.Time) []byte {
	b = append(b, `{"v":1,"type":"`...)
	b = append(b, kind...)
	if id.encoded != nil {
		b = append(b, `","id":`...)
		b = append(b, id.encoded...)
		b = append(b, `,"ts":"`...)
	} else {
		b = append(b, `","ts":"`...)
	}
	b = appendTime(b, now)
	return append(b, '"')
}

// appendTime appends an ISO 8601 time in UTC with exactly three decimals.
func appendTime(b []byte, now time.Time) []byte {
	return now.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
}

func appendAck(b []byte, id execID, now time.Time) []byte {
	return append(appendHead(b, wire.Ack, id, now), '}')
}

func appendStatus(b []byte, id execID, now time.Time, s Status) []byte {
	b = append(appendHead(b, wire.StatusType, id, now), `,"status":"`...)
	return append(append(b, s...), `"}`...)
}

// appendOutputHead begins an output message. The encoded content of data follows, and then
// appendOutputEnd.
func appendOutputHead(b []byte, id execID, now time.Time, s sandbar.Stream) []byte {
	kind := wire.Stdout
	if s == sandbar.Stderr {
		kind = wire.Stderr
	}
	return append(appendHead(b, kind, id, now), `,"data":"`...)
}

func appendOutputEnd(b []byte) []byte { return append(b, `"}`...) }

// result is the content of a result message.
type result struct {
	exitCode int
	exited   bool // false: exit_code is null
	duration time.Duration
	peak     int64 // bytes
	cpu      time.Duration
}

func appendResult(b []byte, id execID, now time.Time, r result) []byte {
	b = append(appendHead(b, wire.ResultType, id, now), `,"exit_code":`...)
	if r.exited {
		b = strconv.AppendInt(b, int64(r.exitCode), 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"duration_ms":`...)
	b = strconv.AppendInt(b, r.duration.Milliseconds(), 10)
	b = append(b, `,"resource_usage":{"peak_memory_mb":`...)
	b = strconv.AppendInt(b, ceilDiv(r.peak, mebibyte), 10)
	b = append(b, `,"cpu_time_ms":`...)
	b = strconv.AppendInt(b, r.cpu.Milliseconds(), 10)
	return append(b, "}}"...)
}

func appendError(b []byte, id execID, now time.Time, code Code, message string) []byte {
	b = append(appendHead(b, wire.ErrorType, id, now), `,"code":"`...)
	b = append(b, code...)
	b = appendString(append(b, `","message":`...), message)
	b = append(b, `,"retryable":`...)
	return append(strconv.AppendBool(b, code.Retryable()), '}')
}

func appendPong(b []byte, now time.Time, active, queued int) []byte {
	b = append(appendHead(b, wire.Pong, execID{}, now), `,"load":{"active_executions":`...)
	b = strconv.AppendInt(b, int64(active), 10)
	b = append(b, `,"queue_depth":`...)
	return append(strconv.AppendInt(b, int64(queued), 10), "}}"...)
}

// mebibyte is the "MB" of memory_mb and peak_memory_mb.
const mebibyte = 1 << 20

// ceilDiv divides and rounds up. Both numbers must not be negative.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}
