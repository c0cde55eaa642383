package executor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// cut passes text to a lines in pieces of a size and returns the emitted pieces, with a + after
// partial ones.
func cut(text string, most, size int) (got []string) {
	l := lines{most: most}
	emit := func(line []byte, partial bool) error {
		s := string(line)
		if partial {
			s += "+"
		}
		got = append(got, s)
		return nil
	}
	for rest := []byte(text); len(rest) > 0; {
		n := min(size, len(rest))
		// The caller may overwrite the bytes after add returns.
		piece := bytes.Clone(rest[:n])
		l.add(piece, emit)
		clear(piece)
		rest = rest[n:]
	}
	l.finish(emit)
	return got
}

func TestLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a\n", []string{"a"}},
		{"a", []string{"a"}},
		{"\n", []string{""}},
		{"a\n\n\nb\n", []string{"a", "", "", "b"}},
		{"a\r\nb\r\r\n\r\nc\rd\n", []string{"a", "b", "", "c\rd"}},
		{"end\r", []string{"end"}},
		{"12345678\n", []string{"12345678"}},
		{"123456789\n", []string{"12345678+", "9"}},
		{"12345678" + "12345678" + "\nx\n", []string{"12345678+", "12345678", "x"}},
		{"1234567é9\n", []string{"1234567+", "é9"}},
		{"12345678\r\n", []string{"12345678+", ""}},
		{"\xff\xff\xff\xff\xff\xff\xff\xe2\x82\xac!\n", []string{"\xff\xff\xff\xff\xff\xff\xff+", "€!"}},
	} {
		for size := 1; size <= len(tt.text)+1; size++ {
			if got := cut(tt.text, 8, size); !slices.Equal(got, tt.want) {
				t.Errorf("%q in pieces of %d: %q, want %q", tt.text, size, got, tt.want)
			}
		}
	}
}

func TestLinesStopAtAnError(t *testing.T) {
	stop := errors.New("stop")
	for _, text := range []string{"a\nb\n", "12345678901234567890"} {
		l, calls := lines{most: 8}, 0
		err := l.add([]byte(text), func([]byte, bool) error { calls++; return stop })
		if err != stop || calls != 1 {
			t.Errorf("%q: %v after %d calls", text, err, calls)
		}
	}
}

// TestLinesLetGo tests that the buffer of a long line is not kept.
func TestLinesLetGo(t *testing.T) {
	l := lines{most: 1 << 20}
	none := func([]byte, bool) error { return nil }
	l.add(make([]byte, 1<<20), none)
	l.add([]byte("\n"), none)
	if cap(l.held) > keepHeld {
		t.Errorf("%d bytes are kept", cap(l.held))
	}
}

// FuzzLines tests that lines do not depend on where the output is split, and that the pieces of a
// line concatenate to the line.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\n\r\n", uint8(1))
	f.Add(strings.Repeat("é", 20)+"\nx", uint8(3))
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		const most = 16
		var want []string
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			want = append(want, line)
		}
		if text == "" {
			want = nil
		}
		var whole []string
		var piece strings.Builder
		for _, got := range cutAll(text, most, int(size)+1) {
			if len(got.text) > most {
				t.Fatalf("a piece of %d bytes", len(got.text))
			}
			if got.partial && utf8.ValidString(text) && !utf8.ValidString(got.text) {
				t.Fatalf("cut within a character: %q", got.text)
			}
			piece.WriteString(got.text)
			if !got.partial {
				whole = append(whole, piece.String())
				piece.Reset()
			}
		}
		trim := func(all []string) []string {
			out := slices.Clone(all)
			for i := range out {
				out[i] = strings.TrimRight(out[i], "\r")
			}
			return out
		}
		if piece.Len() > 0 || fmt.Sprintf("%q", trim(whole)) != fmt.Sprintf("%q", trim(want)) {
			t.Fatalf("%q by %d: %q, want %q", text, size, whole, want)
		}
	})
}

type pieceOfLine struct {
	text    string
	partial bool
}

func cutAll(text string, most, size int) (got []pieceOfLine) {
	l := lines{most: most}
	emit := func(line []byte, partial bool) error {
		got = append(got, pieceOfLine{string(line), partial})
		return nil
	}
	for len(text) > 0 {
		n := min(size, len(text))
		l.add([]byte(text[:n]), emit)
		text = text[n:]
	}
	l.finish(emit)
	return got
}
