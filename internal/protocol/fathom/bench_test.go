package fathom

import (
	"bytes"
	"context"
	"testing"

	"github.com/sandbar-dev/sandbar/engine"
)

// BenchmarkExecution measures the protocol's overhead: one execution over TCP, from execute to
// result, with a sandbox that takes no time.
func BenchmarkExecution(b *testing.B) {
	c := newRig(b, engine.Config{}, Options{}).connect()
	b.ReportAllocs()
	for b.Loop() {
		c.execute("e1", "print stdout hello world")
		for {
			_, msg, err := c.ws.Read(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if bytes.Contains(msg, []byte(`"type":"result"`)) {
				break
			}
		}
	}
}

// BenchmarkStream measures the output of one program over TCP.
func BenchmarkStream(b *testing.B) {
	c := newRig(b, engine.Config{}, Options{}).connect()
	const size = 64 << 20
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		c.execute("e1", "flood stdout 67108864", limitsMuch...)
		for {
			_, msg, err := c.ws.Read(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if len(msg) < 500 && bytes.Contains(msg, []byte(`"type":"result"`)) {
				break
			}
		}
	}
}
