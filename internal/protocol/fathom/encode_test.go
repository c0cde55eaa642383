package fathom

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

// noon is 12:00:00.0019 in UTC, in another zone: milliseconds are rounded down, and the zone is
// converted.
var noon = time.Date(2025, 12, 27, 13, 0, 0, 1_900_000, time.FixedZone("CET", 3600))

// TestEncode compares every message byte by byte, and decodes each with an independent parser.
func TestEncode(t *testing.T) {
	id := newExecID(`a"\` + "\n\u2028é")
	const head = `"id":"a\"\\\n\u2028é","ts":"2025-12-27T12:00:00.001Z"`
	var full, null result
	full = result{exitCode: 3, exited: true, duration: 1500999 * time.Microsecond, peak: 45<<20 - 1, cpu: 120 * time.Millisecond}
	for _, tt := range []struct {
		name, got, want string
	}{
		{"ack", string(appendAck(nil, id, noon)), `{"v":1,"type":"ack",` + head + `}`},
		{"status", string(appendStatus(nil, id, noon, wire.Running)), `{"v":1,"type":"status",` + head + `,"status":"running"}`},
		{"stdout", string(appendOutputEnd(appendOutputHead(nil, id, noon, sandbar.Stdout))), `{"v":1,"type":"stdout",` + head + `,"data":""}`},
		{"stderr", string(appendOutputEnd(appendOutputHead(nil, id, noon, sandbar.Stderr))), `{"v":1,"type":"stderr",` + head + `,"data":""}`},
		{"result", string(appendResult(nil, id, noon, full)),
			`{"v":1,"type":"result",` + head + `,"exit_code":3,"duration_ms":1500,"resource_usage":{"peak_memory_mb":45,"cpu_time_ms":120}}`},
		{"result, exit 0", string(appendResult(nil, id, noon, result{exited: true, peak: 1})),
			`{"v":1,"type":"result",` + head + `,"exit_code":0,"duration_ms":0,"resource_usage":{"peak_memory_mb":1,"cpu_time_ms":0}}`},
		{"result, no exit code", string(appendResult(nil, id, noon, null)),
			`{"v":1,"type":"result",` + head + `,"exit_code":null,"duration_ms":0,"resource_usage":{"peak_memory_mb":0,"cpu_time_ms":0}}`},
		{"error", string(appendError(nil, id, noon, wire.CodeOutputLimit, "too \"much\"\xff")),
			`{"v":1,"type":"error",` + head + `,"code":"OUTPUT_LIMIT","message":"too \"much\"` + "\uFFFD" + `","retryable":false}`},
		{"error without id", string(appendError(nil, execID{}, noon, wire.CodeInternalError, "x")),
			`{"v":1,"type":"error","ts":"2025-12-27T12:00:00.001Z","code":"INTERNAL_ERROR","message":"x","retryable":true}`},
		{"pong", string(appendPong(nil, noon, 3, 14)),
			`{"v":1,"type":"pong","ts":"2025-12-27T12:00:00.001Z","load":{"active_executions":3,"queue_depth":14}}`},
	} {
		if d := cmp.Diff(tt.want, tt.got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, d)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(tt.got), &m); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.name != "pong" && tt.name != "error without id" && m["id"] != id.name {
			t.Errorf("%s: the id came back as %q", tt.name, m["id"])
		}
	}
}

func TestTime(t *testing.T) {
	for _, tt := range []struct {
		at   time.Time
		want string
	}{
		{time.Unix(0, 0), "1970-01-01T00:00:00.000Z"},
		{time.Unix(0, 999_999_999), "1970-01-01T00:00:00.999Z"},
		{time.Unix(1, 10_000_000), "1970-01-01T00:00:01.010Z"},
		{noon, "2025-12-27T12:00:00.001Z"},
	} {
		if got := string(appendTime(nil, tt.at)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.at, got, tt.want)
		}
	}
}

// TestOutputAllocatesNothing tests the path of output, which every byte takes.
func TestOutputAllocatesNothing(t *testing.T) {
	id := newExecID("exec_a1b2c3d4")
	data := []byte(strings.Repeat("héllo\n", 100))
	buf := make([]byte, 0, 8<<10)
	var x text
	n := testing.AllocsPerRun(100, func() {
		buf = appendOutputHead(buf[:0], id, noon, sandbar.Stdout)
		buf = appendOutputEnd(x.append(buf, data))
	})
	if n != 0 {
		t.Errorf("%v allocations for one message", n)
	}
}

func BenchmarkOutputMessage(b *testing.B) {
	id := newExecID("exec_a1b2c3d4")
	data := []byte("hello world\n")
	buf := make([]byte, 0, 1<<10)
	var x text
	b.ReportAllocs()
	for b.Loop() {
		buf = appendOutputHead(buf[:0], id, time.Now(), sandbar.Stdout)
		buf = appendOutputEnd(x.append(buf, data))
	}
}
