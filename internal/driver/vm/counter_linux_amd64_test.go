package vm

import (
	"fmt"
	"testing"
)

// Measurements of the counter agree within a thousandth.
func TestCounterParameter(t *testing.T) {
	var a, b int
	for _, n := range []*int{&a, &b} {
		if _, err := fmt.Sscanf(counterParameter(), " tsc_early_khz=%d", n); err != nil {
			t.Fatal(err)
		}
	}
	if a < 100_000 || a > 20_000_000 || max(a-b, b-a) > a/1000 {
		t.Errorf("%d and %d kHz", a, b)
	}
}
