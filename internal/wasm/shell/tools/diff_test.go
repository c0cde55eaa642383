package tools

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The edit script converts the first file to the second one, and is a shortest one.
func TestEditsAreRightAndShortest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n", "\n"})
		a, b := rapid.SliceOfN(line, 0, 30).Draw(t, "a"), rapid.SliceOfN(line, 0, 30).Draw(t, "b")
		d := &differ{t: &cmd{ctx: t.Context()}, a: a, b: b}
		var made []string
		at, changed := 0, 0
		for _, e := range d.edits() {
			if e.a0 < at || e.a1 < e.a0 || e.b1 < e.b0 {
				t.Fatalf("edits out of order: %v", d.edits())
			}
			made = append(append(made, a[at:e.a0]...), b[e.b0:e.b1]...)
			at = e.a1
			changed += e.a1 - e.a0 + e.b1 - e.b0
		}
		if made = append(made, a[at:]...); !slices.Equal(made, b) {
			t.Fatalf("made %q of %q, want %q", made, a, b)
		}
		if least := len(a) + len(b) - 2*common(a, b); changed != least {
			t.Errorf("%d lines change, %d would do: %v", changed, least, d.edits())
		}
	})
}

// common returns the length of the longest common subsequence.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		before := 0
		for j, y := range b {
			old := row[j+1]
			if x == y {
				row[j+1] = before + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			before = old
		}
	}
	return row[len(b)]
}
