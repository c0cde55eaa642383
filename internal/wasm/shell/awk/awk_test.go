package awk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tooLong is the panic value with which a test ends a program.
type tooLong struct{}

type sink struct{ strings.Builder }

func (*sink) Close() error { return nil }

// awk runs a program on a text for a bounded number of steps.
func awk(t testing.TB, program, text string) (out string, status int, err error) {
	t.Helper()
	p, err := Parse(program)
	if err != nil {
		return "", 0, err
	}
	var b strings.Builder
	w := bufio.NewWriter(&b)
	checks := 0
	defer func() {
		if e := recover(); e == (tooLong{}) {
			err = errors.New("too long")
		} else if e != nil {
			panic(e)
		}
	}()
	status, err = p.Run(Env{
		Args: []string{"awk"}, Environ: []string{"E=env"}, Vars: []string{`v=a\tb`}, Stdin: strings.NewReader(text), Stdout: w,
		Open: func(name string) (io.ReadCloser, error) {
			if name == "nope" {
				return nil, errors.New("none")
			}
			return io.NopCloser(strings.NewReader("1 one\n2 two\n")), nil
		},
		Create: func(string, bool) (io.WriteCloser, error) { return &sink{}, nil },
		Run: func(command string, _ io.Reader, out io.Writer) int {
			if out != nil {
				fmt.Fprintln(out, command)
			}
			return 3
		},
		Warn: func(string) {},
		Check: func() {
			if checks++; checks > 20 {
				panic(tooLong{})
			}
		},
		Time: func() time.Time { return time.Unix(0, 0) }, Zone: time.UTC,
		Strftime: func(layout string, when time.Time) string { return fmt.Sprint(layout, when.Unix()) },
	})
	_ = w.Flush()
	return b.String(), status, err
}

func TestPrograms(t *testing.T) {
	for _, c := range []struct{ program, in, want string }{
		{`{print $2}`, "a b\nc d\n", "b\nd\n"},
		{`BEGIN{print v, ENVIRON["E"], length(ENVIRON)}`, "", "a\tb env 1\n"},
		{`BEGIN{print gensub(/(a)(b)/, "\\2\\1", "g", "abab"), gensub("a", "x", 2, "aaa")}`, "", "baba axa\n"},
		{`BEGIN{print strftime("%Y", 5), systime(), mktime("1970 01 01 00 01 00")}`, "", "%Y5 0 60\n"},
		{`BEGIN{print and(6,3), or(6,3), xor(6,3), lshift(1,4), rshift(16,2), strtonum("0x1f")}`, "", "2 7 5 16 4 31\n"},
		{`BEGIN{a[3]="x"; a[1]="z"; a[2]="y"; n=asort(a); print n, a[1], a[3]}`, "", "3 x z\n"},
		{`BEGIN{if(match("key=val", /(.*)=(.*)/, m)) print m[1], m[2]}`, "", "key val\n"},
		{`BEGIN{while(("cmd" | getline x) > 0) print x, NR; print close("cmd"), close("none")}`, "", "cmd 1\n3 -1\n"},
		{`BEGIN{print system("x"); print (getline y < "nope")}`, "", "3\n-1\n"},
		{`function f(a){a["k"]=1} BEGIN{f(z); print length(z)}`, "", "1\n"},
		{`function f(n){if(n>0){g(n)}; return n} function g(n){f(n-1)} BEGIN{print f(5)}`, "", "5\n"},
		{`function f(){exit 4} BEGIN{f(); print "no"} END{print "end"}`, "", "end\n"},
		{`function f(){next} {f(); print "no"} END{print NR}`, "a\nb\n", "2\n"},
		{`{nextfile; print} END{print NR}`, "a\nb\n", "1\n"},
		{`BEGIN{RS="[0-9]+"} {print}`, "a1b22c\n", "a\nb\nc\n"},
		{`BEGIN{printf "%s|%5d|%c|%c\n", "x", 42, "yz", 66}`, "", "x|   42|y|B\n"},
		{`BEGIN{$3="c"; print; print NF; $0="a b"; print $1; NF=1; print}`, "", "  c\n3\na\na\n"},
		{`BEGIN{x["a"]; if ("a" in x) print "in"; delete x; print length(x)}`, "", "in\n0\n"},
		{`BEGIN { if (!(1 in a)) print 1; print 1 " " -1, 2 -1, -2^2, 2^-1, !1 + 1 }`, "", "1\n1-1 1 -4 0.5 1\n"},
		{`BEGIN { print length "x"; print length("abc") length }`, "", "0x\n30\n"},
		{`BEGIN { print substr("hello", 2), substr("hello", 1.5, 1), substr("hello", -5, 7) }`, "", "ello e h\n"},
		{`BEGIN { print index("", "a"), 1/4, 1e3, 010, "0x10"+0, "1e2"+0, ".5"+0, "+5"+0 }`, "", "0 0.25 1000 10 0 100 0.5 5\n"},
		{`$1 == 10`, "10\n10.0\n1e1\nabc\n", "10\n10.0\n1e1\n"},
	} {
		got, _, err := awk(t, c.program, c.in)
		if err != nil || got != c.want {
			t.Errorf("%s\n%q, %v, want %q", c.program, got, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, program := range []string{"{", "}", "BEGIN", "BEGIN{print 1", `BEGIN{"a}`, "/a", "{f()}", "function f(a,a){}", "function f(){} function f(){}", "BEGIN{return}", "BEGIN{break}", "{1=2}", "BEGIN{substr()}", "{a[}", "BEGIN{printf}",
		"BEGIN{@}", "{/[/}", strings.Repeat("(", 10_000), "BEGIN{" + strings.Repeat("-", 10_000) + "1}", strings.Repeat("{", 10_000), strings.Repeat("!", 100_000)} {
		if _, err := Parse(program); err == nil {
			t.Errorf("%.60q is no error", program)
		}
	}
	for _, program := range []string{"BEGIN{a[1]; print a}", "BEGIN{a=1; a[1]=2}", "BEGIN{print 1/0}", "BEGIN{print $-1}", "function f(){f()} BEGIN{f()}", "BEGIN{while(1)s=s\"xxxxxxxx\"}", "BEGIN{split(\"a\",1)}", `BEGIN{x="("; print "a" ~ x}`} {
		if _, _, err := awk(t, program, ""); err == nil {
			t.Errorf("%q runs", program)
		}
	}
}

func FuzzAwk(f *testing.F) {
	for _, s := range []string{`{print $1, NF}`, `BEGIN{for(i=0;i<3;i++)a[i]=i; for(k in a)print k}`, `/x/,/y/{gsub(/a/,"&b")}`, `function f(a,b){return a b} {print f($1,2)}`, `{while((getline l < "f")>0)print l|"c"}`, `BEGIN{printf "%d %s\n", 1, "x" > "o"}`, `$2~/^[a-z]+$/&&!seen[$1]++`, `{$3=$1;NF=2}1`, `BEGIN{print substr("x",-1)**2 ? -1 : !x in y}`} {
		f.Add(s, "a b c\nx y\n")
	}
	f.Fuzz(func(t *testing.T, program, text string) {
		if len(program) > 200 || len(text) > 200 {
			return
		}
		_, _, _ = awk(t, program, text)
	})
}
