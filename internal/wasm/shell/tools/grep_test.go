package tools

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// The index of texts finds what a search for each finds.
func TestAnyOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	found := 0
	for range 1000 {
		var texts []string
		for range 1 + r.IntN(20) {
			texts = append(texts, word(3+r.IntN(20)))
		}
		if r.IntN(50) == 0 {
			texts = append(texts, "")
		}
		match, line := anyOf(texts), word(r.IntN(12))
		want := false
		for _, text := range texts {
			want = want || strings.Contains(line, text)
		}
		if match(line) != want {
			t.Fatalf("%q in %q: %v", texts, line, !want)
		}
		if want {
			found++
		}
	}
	if found < 100 || found > 900 {
		t.Errorf("%d of 1000 lines have one of the texts", found)
	}
}
