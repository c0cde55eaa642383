package engine_test

import (
	"strconv"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// The engine's own cost of one execution: the driver does nothing.
func BenchmarkRun(b *testing.B) {
	r := newRig(b, faulty.New(), nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Run(b.Context(), command("exit", "0"), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The engine's cost per byte of output.
func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	r := newRig(b, faulty.New(), func(c *engine.Config) { c.Max.Output = sandbar.Unlimited })
	job := command("flood", "stdout", strconv.Itoa(size))
	job.Spec.Limits.Output = sandbar.Unlimited
	b.SetBytes(size)
	for b.Loop() {
		if _, err := r.Run(b.Context(), job, nil); err != nil {
			b.Fatal(err)
		}
	}
}
