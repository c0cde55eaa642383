package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		bad  bool
	}{
		{in: "node -v", want: []string{"node", "-v"}},
		{in: "  a \t b\nc  ", want: []string{"a", "b", "c"}},
		{in: "", want: nil},
		{in: " \t\n", want: nil},
		{in: `echo 'a "b" \c'`, want: []string{"echo", `a "b" \c`}},
		{in: `echo "a 'b' \" \$ \\ \c"`, want: []string{"echo", `a 'b' " $ \ \c`}},
		{in: `a\ b c\\d \"`, want: []string{"a b", `c\d`, `"`}},
		{in: `""`, want: []string{""}},
		{in: `'' ""x''`, want: []string{"", "x"}},
		{in: `a"b c"d'e f'`, want: []string{"ab cde f"}},
		{in: "a # b c\nd", want: []string{"a", "d"}},
		{in: "a#b", want: []string{"a#b"}},
		{in: "#all", want: nil},
		{in: "a\\\nb", want: []string{"ab"}},
		{in: "\"a\\\nb\"", want: []string{"ab"}},
		{in: "echo $HOME && pwd | cat > f; x", want: []string{"echo", "$HOME", "&&", "pwd", "|", "cat", ">", "f;", "x"}},
		{in: "a\u00a0b c", want: []string{"a\u00a0b", "c"}},
		{in: "a\rb", want: []string{"a\rb"}},
		{in: "'a", bad: true},
		{in: `"a`, bad: true},
		{in: `"a\`, bad: true},
		{in: `a\`, bad: true},
		{in: `a 'b' "c`, bad: true},
	} {
		got, ok := Split(c.in)
		if ok == c.bad || !slices.Equal(got, c.want) {
			t.Errorf("Split(%q) = %q, %v, want %q", c.in, got, ok, c.want)
		}
	}
}

// TestSplitAsAShellDoes compares Split with a real shell, for lines without special characters
// except quotes.
func TestSplitAsAShellDoes(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for _, line := range []string{
		`a b`, `'a b' c`, `"a \" b"`, `a\ b`, `x'y'"z"`, `"a\b"`, `'\'`, `"" ''`, `a # b`, `a#b`, `"\\"`, `\#a`, `a\'b`,
	} {
		// printf prints each word in brackets.
		out, err := exec.Command("/bin/sh", "-c", `printf '[%s]' `+line).Output()
		if err != nil {
			t.Fatal(err)
		}
		words, ok := Split(line)
		if got := "[" + strings.Join(words, "][") + "]"; !ok || got != string(out) {
			t.Errorf("Split(%q) gives %s, the shell %s", line, got, out)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`a 'b c' "d\"e" f\ g # h`)
	f.Fuzz(func(t *testing.T, line string) {
		words, ok := Split(line)
		if !ok {
			return
		}
		// Quoting the words and splitting again returns the same words.
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, ok := Split(strings.Join(quoted, " "))
		if !ok || !cmp.Equal(words, again) {
			t.Errorf("%q: %q became %q", line, words, again)
		}
	})
}
