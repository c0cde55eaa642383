package modes

import (
	"fmt"
	"io/fs"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		old  fs.FileMode
		dir  bool
		want string
	}{
		{"755", 0o600, false, "755"}, {"0644", 0, false, "644"}, {"4755", 0, false, "4755"}, {"u+x", 0o644, false, "744"}, {"go-r", 0o644, false, "600"}, {"a=r", 0o777, false, "444"},
		{"u=rwx,g=rx,o=", 0, false, "750"}, {"+x", 0o644, false, "755"}, {"+w", 0o444, false, "644"}, {"X", 0o644, false, ""}, {"a+X", 0o644, false, "644"}, {"a+X", 0o644, true, "755"}, {"a+X", 0o744, false, "755"},
		{"g=u", 0o640, false, "660"}, {"o=g", 0o640, false, "644"}, {"u+s", 0o755, false, "4755"}, {"g+s", 0o755, false, "2755"}, {"+t", 0o777, true, "1777"}, {"u-s", fs.ModeSetuid | 0o755, false, "755"},
		{"u+r-x", 0o100, false, "400"}, {"8", 0, false, ""}, {"u", 0, false, ""}, {"", 0, false, ""}, {"u+q", 0, false, ""}, {"77777", 0, false, ""}, {"a+r,", 0, false, ""},
	} {
		m, err := Parse(c.text, c.old, c.dir, 0o022)
		got := ""
		if err == nil {
			got = fmt.Sprintf("%o", Unix(m))
		}
		if got != c.want {
			t.Errorf("Parse(%q, %o) = %q, %v, want %q", c.text, Unix(c.old), got, err, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for want, m := range map[string]fs.FileMode{
		"-rw-r--r--": 0o644, "drwxr-xr-x": fs.ModeDir | 0o755, "lrwxrwxrwx": fs.ModeSymlink | 0o777, "crw-rw-rw-": fs.ModeDevice | fs.ModeCharDevice | 0o666,
		"-rwsr-sr-t": fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o755, "-r-Sr-Sr-T": fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o444,
	} {
		if got := String(m); got != want {
			t.Errorf("String(%v) = %q, want %q", m, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"755", "u+x,g-w", "a=rwXst", "=", "+", "ugo=u"} {
		f.Add(s, uint32(0o644))
	}
	f.Fuzz(func(t *testing.T, text string, old uint32) {
		m, err := Parse(text, fs.FileMode(old&0o777), old&0o1000 != 0, 0o022)
		if err == nil && Unix(m)&^0o7777 != 0 {
			t.Errorf("%q gives %o", text, Unix(m))
		}
	})
}
