package sed

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is the panic value with which a test ends a script.
type tooLong struct{}

// edit runs a script on a text for a bounded number of steps.
func edit(t testing.TB, script, text string, o Options) (out string, status int, err error) {
	t.Helper()
	s, err := Compile(script, o)
	if err != nil {
		return "", 0, err
	}
	var b strings.Builder
	w := bufio.NewWriter(&b)
	files := []*Input{{Name: "-", Reader: strings.NewReader(text)}}
	checks := 0
	defer func() {
		if e := recover(); e == (tooLong{}) {
			err = errors.New("too long")
		} else if e != nil {
			panic(e)
		}
	}()
	status, err = s.Run(Env{
		Next: func() *Input {
			if len(files) == 0 {
				return nil
			}
			f := files[0]
			files = files[1:]
			return f
		},
		Output: func(*Input) *bufio.Writer { return w },
		Read:   func(string) ([]byte, bool) { return []byte("file\n"), true },
		Open:   func(string) *bufio.Reader { return bufio.NewReader(strings.NewReader("1\n2\n")) },
		Create: func(string) (io.Writer, error) { return io.Discard, nil },
		Check: func() {
			if checks++; checks > 20 {
				panic(tooLong{})
			}
		},
	})
	_ = w.Flush()
	return b.String(), status, err
}

func TestScripts(t *testing.T) {
	for _, c := range []struct {
		script, in, want string
		o                Options
	}{
		{script: "", in: "a\nb", want: "a\nb"},
		{script: "s/a/b/", in: "a\n", want: "b\n"},
		{script: "#n\np", in: "a\n", want: "a\n"},
		{script: "p", in: "a\n", want: "a\n", o: Options{Quiet: true}},
		{script: "$!N;P;D", in: "1\n2\n3\n", want: "1\n2\n3\n"},
		{script: "R x", in: "a\nb\nc\n", want: "a\n1\nb\n2\nc\n"},
		{script: "r x", in: "a", want: "a\nfile\n"},
		{script: "s/\\n/,/;s/x\\/y/z/;s,a\\,b,c,", in: "x/y a,b\n", want: "z c\n"},
		{script: "s/[/]/-/", in: "a/b\n", want: "a-b\n"},
		{script: "//s/a/[&]/", in: "a\n", want: ""},
		{script: "/a/s//[&]/", in: "xa\n", want: "x[a]\n"},
		{script: "y/a\\nb/x\\ty/", in: "ab\n", want: "xy\n"},
		{script: "s/./\\x41/", in: "q\n", want: "A\n"},
		{script: "l 5", in: "abcdefg\n", want: "abcd\\\nefg$\nabcdefg\n"},
		{script: "{;p;};{p}", in: "a\n", want: "a\na\na\n"},
		{script: "z;s/^$/empty/", in: "a\n", want: "empty\n"},
	} {
		got, _, err := edit(t, c.script, c.in, c.o)
		if c.want == "" && c.script != "" {
			if err == nil {
				t.Errorf("%q is no error: %q", c.script, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.script, got, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, script := range []string{"k", "s/a/b", "s/a", "s", "/a", "{p", "p}", "b nowhere", "y/ab/c/", "s/a/\\1/", "1,p", "0p", ":", "a", "r", "s/a/b/e", "s/a/b/q", "pp", "s/\\(/x/", "3~", "s/a/b/0", "5:x", "y", "w"} {
		if _, err := Compile(script, Options{}); err == nil {
			t.Errorf("%q is no error", script)
		}
	}
	if _, err := Compile(strings.Repeat("p\n", maxScript), Options{}); err == nil {
		t.Error("a long script is no error")
	}
}

// Every script is refused or runs, and the empty script changes nothing.
func FuzzSed(f *testing.F) {
	for _, s := range []string{"s/a/b/g", "1,3d", "/x/{n;p}", "$!N;P;D", "y/ab/xy/", ":a;s/b/a/;ta", "a\\\ntext", "s/\\(.\\)\\(.\\)/\\2\\1/2p", "0~2!d", "/a/,+1c x", "s|[|]|\\U&|", "H;x;G;l;=", "i\\"} {
		f.Add(s, "a\nb\nc", false)
	}
	f.Fuzz(func(t *testing.T, script, text string, extended bool) {
		if len(script) > 200 || len(text) > 200 {
			return
		}
		_, _, _ = edit(t, script, text, Options{Extended: extended})
		if out, _, err := edit(t, "", text, Options{}); err != nil || out != text {
			t.Errorf("an empty script made %q of %q, %v", out, text, err)
		}
	})
}
