// Package suggest finds the most similar valid name for an unknown one, for error messages about
// settings, flags and request fields. It is pure, and its cost is bounded for untrusted names.
package suggest

// Name returns the candidate that is most similar to word, "" if none is similar enough. Of equal
// ones the first wins. A word of more than 200 bytes has no similar candidate.
func Name(word string, candidates []string) string {
	if len(word) > 200 {
		return ""
	}
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, substitutions and swaps of neighbours that
// turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, previous := make([]int, len(b)+1), make([]int, len(b)+1)
	current := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
