package format

import (
	"fmt"
	"strings"
	"testing"
)

func TestSpec(t *testing.T) {
	one := func(layout string) Spec {
		sp, n := Parse(strings.TrimPrefix(layout, "%"), func() int { return 7 })
		if n != len(layout)-1 {
			t.Fatalf("%s: %d bytes", layout, n)
		}
		return sp
	}
	for _, c := range []struct{ got, want string }{
		{one("%d").Int(-5), "-5"}, {one("%5d").Int(42), "   42"}, {one("%-5d").Int(42), "42   "}, {one("%05d").Int(-42), "-0042"}, {one("%+d").Int(1), "+1"},
		{one("% d").Int(1), " 1"}, {one("%.3d").Int(5), "005"}, {one("%8.3d").Int(5), "     005"}, {one("%.0d").Int(0), ""}, {one("%*d").Int(1), "      1"}, {one("%ld").Int(1), "1"},
		{one("%x").Uint(255), "ff"}, {one("%#X").Uint(255), "0XFF"}, {one("%#o").Uint(8), "010"}, {one("%#x").Uint(0), "0"}, {one("%08x").Uint(255), "000000ff"}, {one("%u").Uint(1 << 63), "9223372036854775808"},
		{one("%f").Float(1.5), "1.500000"}, {one("%.0f").Float(2.5), "2"}, {one("%e").Float(12345.678), "1.234568e+04"}, {one("%g").Float(1e-5), "1e-05"}, {one("%g").Float(123456789), "1.23457e+08"},
		{one("%g").Float(100000), "100000"}, {one("%.3g").Float(0.00012345), "0.000123"}, {one("%#g").Float(1), "1.00000"}, {one("%G").Float(1e-10), "1E-10"}, {one("%010.2f").Float(-3.14159), "-000003.14"},
		{one("%s").String("é"), "é"}, {one("%4s").String("é"), "   é"}, {one("%.2s").String("日本語"), "日本"}, {one("%-4s").String("x"), "x   "},
	} {
		if strings.TrimSuffix(c.got, "|") != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestEscapes(t *testing.T) {
	for _, c := range []struct {
		in   string
		d    Dialect
		want string
	}{
		{`a\tb\n`, Format, "a\tb\n"}, {`\101\0101`, Format, "A\b1"}, {`\x41\x4`, Format, "A\x04"}, {`\q\`, Format, `\q\`}, {`\u00e9\U0001F600`, Format, "é😀"},
		{`\0101\101`, EchoE, "AA"}, {`x\cy`, EchoE, "x"}, {`\'\"\e`, Dollar, "'\"\x1b"}, {`\cA`, Dollar, "\x01"},
	} {
		if got, _ := replace(c.in, c.d); got != c.want {
			t.Errorf("%q in dialect %d: %q, want %q", c.in, c.d, got, c.want)
		}
	}
}

func TestFloat(t *testing.T) {
	for in, want := range map[string]string{"1": "1 1", "1.5e3x": "1500 5", ".5": "0.5 2", "-2e": "-2 2", "x": "0 0", "": "0 0", "0x1F": "31 4", "inf": "+Inf 3", "-nan": "NaN 4", "1e999": "+Inf 5", ".": "0 0", "+": "0 0"} {
		f, n := Float(in)
		if got := fmt.Sprint(f, " ", n); strings.ReplaceAll(got, "  ", " ") != want {
			t.Errorf("Float(%q) = %s, want %s", in, got, want)
		}
	}
}

// Printf terminates, respects its limit and does not panic.
func FuzzPrintf(f *testing.F) {
	for _, s := range []string{"%s", "%d %x", "%*d", "%-10.3f|", "%b", `\x41\0`, "%q", "%c%%", "%", "%99999d", "%.99999f", "% +#0-5d"} {
		f.Add(s, "1", "a\\tb")
	}
	f.Fuzz(func(t *testing.T, layout, a, b string) {
		const limit = 1 << 18
		var out strings.Builder
		problems := Printf(&out, layout, []string{a, b, a}, limit)
		if out.Len() > limit+(len(layout)+len(a)+len(b)+2*MaxWidth)*8 {
			t.Errorf("%q wrote %d bytes", layout, out.Len())
		}
		for _, p := range problems {
			if p == "" {
				t.Errorf("%q: a problem without words", layout)
			}
		}
		if !strings.ContainsAny(layout, `%\`) && out.String() != layout {
			t.Errorf("%q became %q", layout, &out)
		}
	})
}
