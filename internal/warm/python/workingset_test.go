package python

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// A template gets the pages that a profile run has printed, and of written pages no more than the
// bound.
func TestWorkingSet(t *testing.T) {
	words := func(all ...uint64) []byte {
		b := []byte("pages\n")
		for _, w := range all {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	for _, c := range []struct {
		name    string
		imports []string
		memory  int64
		output  string
		want    []byte
	}{
		{"nothing", nil, 0, "", nil},
		{"no pages", nil, 0, "\nhello\n1 2\n", nil},
		{"pages", nil, 0, "\n1000 2000 17\n5000 1000 16\n", words(0x1000, 0x2000, 0x17, 0x5000, 0x1000, 0x16)},
		{"more than the bound", nil, 0, "1000 380000 17\n400000 1000 17\n500000 1000 16\n", words(0x1000, 0x380000, 0x17, 0x500000, 0x1000, 0x16)},
		{"with imports", []string{"numpy"}, 0, "1000 380000 17\n400000 1000 17\n", words(0x1000, 0x380000, 0x17, 0x400000, 0x1000, 0x17)},
		{"with little memory", []string{"numpy"}, 8 << 20, "1000 200000 17\n400000 1000 17\n", words(0x1000, 0x200000, 0x17)},
		{"without a limit", nil, -1, "1000 200000 17\n400000 1000 17\n", words(0x1000, 0x200000, 0x17, 0x400000, 0x1000, 0x17)},
	} {
		if got := WorkingSet(c.imports, c.memory, []byte(c.output)); !bytes.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if n := len(WorkingSet(nil, 0, []byte(strings.Repeat("1000 1000 16\n", 100_000)))); n > maxWorkingSet+24 {
		t.Errorf("a message of %d bytes", n)
	}
}
