package tools

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// odFormat is one output format of od.
type odFormat struct {
	kind byte // a c d u o x f
	size int
	text bool // append the characters (z)
}

func od(t *cmd) {
	radix, limit, skip, width, dup := byte('o'), int64(-1), int64(0), 16, false
	var formats []odFormat
	short := map[byte]odFormat{'a': {'a', 1, false}, 'b': {'o', 1, false}, 'c': {'c', 1, false}, 'd': {'u', 2, false}, 'o': {'o', 2, false}, 'x': {'x', 2, false},
		's': {'d', 2, false}, 'i': {'d', 4, false}, 'l': {'d', 8, false}, 'f': {'f', 4, false}}
	files := t.options(append(letters("abcdoxsilf", func(c byte) { formats = append(formats, short[c]) }),
		"A: address-radix", func(v string) { radix = (v + "o")[0] },
		"t: format", func(v string) { formats = append(formats, t.odFormats(v)...) },
		"N: read-bytes", t.amount("bytes", &limit),
		"j: skip-bytes", t.amount("bytes", &skip),
		"w:: width", func(v string) {
			width = 32
			if v != "" {
				width = max(1, t.number("width", v))
			}
		},
		"v output-duplicates", &dup,
	)...)
	if len(formats) == 0 {
		formats = []odFormat{{'o', 2, false}}
	}
	data := t.allInput(files)
	data = data[min(skip, int64(len(data))):]
	if limit >= 0 {
		data = data[:min(limit, int64(len(data)))]
	}
	address := func(n int64) string {
		switch radix {
		case 'd':
			return fmt.Sprintf("%07d", n)
		case 'x':
			return fmt.Sprintf("%06x", n)
		case 'n':
			return ""
		}
		return fmt.Sprintf("%07o", n)
	}
	var last []byte
	starred := false
	for at := 0; at < len(data); at += width {
		line := data[at:min(len(data), at+width)]
		if !dup && at > 0 && bytes.Equal(line, last) && len(line) == width {
			if !starred {
				t.out.WriteString("*\n")
			}
			starred = true
			continue
		}
		last, starred = line, false
		for i, f := range formats {
			prefix := address(skip + int64(at))
			if i > 0 {
				prefix = strings.Repeat(" ", len(prefix))
			}
			t.out.WriteString(prefix + f.line(line, widest(formats)) + "\n")
		}
	}
	if radix != 'n' {
		t.out.WriteString(address(skip+int64(len(data))) + "\n")
	}
}

func (t *cmd) allInput(files []string) []byte {
	var data []byte
	t.each(files, func(name string, r io.Reader) { data = append(data, t.readAll(name, r)...) })
	return data
}

func (t *cmd) odFormats(text string) []odFormat {
	var out []odFormat
	for text != "" {
		f := odFormat{kind: text[0], size: 4}
		text = text[1:]
		switch f.kind {
		case 'a', 'c':
			f.size = 1
		case 'f':
			f.size = 8
		case 'd', 'u', 'o', 'x':
		default:
			t.fatal(1, "invalid character '%c' in type string", f.kind)
		}
		if n := leadingDigits(text); n != "" {
			f.size, text = t.number("size", n), text[len(n):]
		} else if text != "" && strings.IndexByte("CSILFD", text[0]) >= 0 {
			f.size, text = map[byte]int{'C': 1, 'S': 2, 'I': 4, 'L': 8, 'F': 4, 'D': 8}[text[0]], text[1:]
		}
		if strings.HasPrefix(text, "z") {
			f.text, text = true, text[1:]
		}
		if f.size != 1 && f.size != 2 && f.size != 4 && f.size != 8 {
			t.fatal(1, "invalid type string: this system doesn't provide a %d-byte integral type", f.size)
		}
		out = append(out, f)
	}
	return out
}

// cell returns the width of one value with the blank before it.
func (f odFormat) cell() int {
	switch f.kind {
	case 'a', 'c':
		return 4
	case 'x':
		return 2*f.size + 1
	case 'o':
		return []int{0, 4, 7, 0, 12, 0, 0, 0, 23}[f.size]
	case 'u':
		return []int{0, 4, 6, 0, 11, 0, 0, 0, 21}[f.size]
	case 'd':
		return []int{0, 5, 7, 0, 12, 0, 0, 0, 21}[f.size]
	}
	return []int{0, 0, 0, 0, 16, 0, 0, 0, 25}[f.size]
}

// widest returns the width of eight bytes in the widest format.
func widest(formats []odFormat) int {
	w := 0
	for _, f := range formats {
		w = max(w, f.cell()*8/f.size)
	}
	return w
}

func (f odFormat) line(b []byte, eight int) string {
	var s strings.Builder
	width := eight * f.size / 8
	padded := b
	if extra := len(b) % f.size; extra != 0 {
		padded = append(append([]byte{}, b...), make([]byte, f.size-extra)...)
	}
	for i := 0; i < len(padded); i += f.size {
		fmt.Fprintf(&s, "%*s", width, f.value(padded[i:i+f.size]))
	}
	if f.text {
		fmt.Fprintf(&s, "%s  >%s<", strings.Repeat(" ", max(0, (16-len(b))/f.size*width)), printable(b))
	}
	return s.String()
}

func printable(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if c < ' ' || c > '~' {
			c = '.'
		}
		out[i] = c
	}
	return string(out)
}

var charNames = strings.Fields("nul soh stx etx eot enq ack bel bs ht nl vt ff cr so si dle dc1 dc2 dc3 dc4 nak syn etb can em sub esc fs gs rs us sp")

func (f odFormat) value(b []byte) string {
	var n uint64
	switch f.size {
	case 1:
		n = uint64(b[0])
	case 2:
		n = uint64(binary.LittleEndian.Uint16(b))
	case 4:
		n = uint64(binary.LittleEndian.Uint32(b))
	case 8:
		n = binary.LittleEndian.Uint64(b)
	}
	switch f.kind {
	case 'a':
		c := b[0] & 0x7f
		switch {
		case c <= ' ':
			return charNames[c]
		case c == 0x7f:
			return "del"
		}
		return string(c)
	case 'c':
		if i := strings.IndexByte("\x00\a\b\f\n\r\t\v", b[0]); i >= 0 {
			return `\` + "0abfnrtv"[i:i+1]
		}
		if b[0] >= ' ' && b[0] < 0x7f {
			return string(b[0])
		}
		return fmt.Sprintf("%03o", b[0])
	case 'x':
		return fmt.Sprintf("%0*x", 2*f.size, n)
	case 'o':
		return fmt.Sprintf("%0*o", f.cell()-1, n)
	case 'd':
		shift := 64 - 8*f.size
		return strconv.FormatInt(int64(n<<shift)>>shift, 10)
	case 'f':
		if f.size == 4 {
			return strconv.FormatFloat(float64(math.Float32frombits(uint32(n))), 'g', 8, 32)
		}
		return strconv.FormatFloat(math.Float64frombits(n), 'g', 17, 64)
	}
	return strconv.FormatUint(n, 10)
}

// hexdump implements hexdump. The default format is words of two bytes.
func hexdump(t *cmd) {
	mode, limit, skip, dup := byte(0), int64(-1), int64(0), false
	if t.name == "hd" {
		mode = 'C'
	}
	files := t.options(append(letters("bcdox", func(c byte) { mode = c }),
		"C canonical", set(&mode, 'C'),
		"n: length", t.amount("length", &limit),
		"s: skip", t.amount("offset", &skip),
		"v no-squeezing", &dup,
	)...)
	data := t.allInput(files)
	data = data[min(skip, int64(len(data))):]
	if limit >= 0 {
		data = data[:min(limit, int64(len(data)))]
	}
	var last []byte
	starred := false
	for at := 0; at < len(data); at += 16 {
		line := data[at:min(len(data), at+16)]
		if !dup && at > 0 && len(line) == 16 && bytes.Equal(line, last) {
			if !starred {
				t.out.WriteString("*\n")
			}
			starred = true
			continue
		}
		last, starred = line, false
		t.out.WriteString(hexLine(mode, skip+int64(at), line) + "\n")
	}
	if len(data) > 0 {
		width := 7
		if mode == 'C' {
			width = 8
		}
		fmt.Fprintf(t.out, "%0*x\n", width, skip+int64(len(data)))
	}
}

func hexLine(mode byte, at int64, line []byte) string {
	var s strings.Builder
	if mode == 'C' {
		fmt.Fprintf(&s, "%08x ", at)
		for i := range 16 {
			if i%8 == 0 {
				s.WriteByte(' ')
			}
			if i < len(line) {
				fmt.Fprintf(&s, "%02x ", line[i])
			} else {
				s.WriteString("   ")
			}
		}
		return s.String() + " |" + printable(line) + "|"
	}
	fmt.Fprintf(&s, "%07x", at)
	if mode == 'b' || mode == 'c' {
		for i := range 16 {
			cell := ""
			if i < len(line) {
				cell = fmt.Sprintf("%03o", line[i])
				if mode == 'c' {
					cell = odFormat{'c', 1, false}.value(line[i : i+1])
				}
			}
			fmt.Fprintf(&s, " %3s", cell)
		}
		return s.String()
	}
	for i := 0; i < 16; i += 2 {
		cell := ""
		if i < len(line) {
			two := append(append([]byte{}, line[i:min(len(line), i+2)]...), 0)
			n := binary.LittleEndian.Uint16(two)
			switch mode {
			case 'd':
				cell = fmt.Sprintf("  %05d", n)
			case 'o':
				cell = fmt.Sprintf(" %06o", n)
			case 'x':
				cell = fmt.Sprintf("   %04x", n)
			default:
				cell = fmt.Sprintf("%04x", n)
			}
		}
		width := 7
		if mode == 0 {
			width = 4
		}
		fmt.Fprintf(&s, " %*s", width, cell)
	}
	return s.String()
}

func xxd(t *cmd) {
	plain, revert, upper, include, bits := false, false, false, false, false
	cols, group, limit, skip := 0, -1, int64(-1), int64(0)
	files := t.options(
		"p plain postscript ps", &plain,
		"r revert reverse", &revert,
		"u uppercase", &upper,
		"i include", &include,
		"b bits", &bits,
		"c: cols", t.integer("columns", &cols),
		"l: len", t.amount("length", &limit),
		"s: seek", func(v string) { skip = t.size("offset", strings.TrimPrefix(v, "+")) },
		"g: groupsize", t.integer("octets", &group),
	)
	if cols <= 0 {
		cols = 16
		if plain {
			cols = 30
		}
		if include {
			cols = 12
		}
		if bits {
			cols = 6
		}
	}
	if group < 0 {
		group = 2
		if bits {
			group = 1
		}
	}
	name := "-"
	if len(files) > 0 {
		name = files[0]
	}
	r, err := t.open(name)
	t.must(err, 2, "%s", name)
	defer r.Close()
	data := t.readAll(name, r)
	if revert {
		t.xxdRevert(data, plain)
		return
	}
	data = data[min(max(skip, 0), int64(len(data))):]
	if limit >= 0 {
		data = data[:min(limit, int64(len(data)))]
	}
	digits := "%02x"
	if upper {
		digits = "%02X"
	}
	if bits {
		digits = "%08b"
	}
	switch {
	case plain:
		for at := 0; at < len(data); at += cols {
			for _, b := range data[at:min(len(data), at+cols)] {
				fmt.Fprintf(t.out, digits, b)
			}
			t.out.WriteByte('\n')
		}
	case include:
		t.xxdInclude(name, data, cols)
	default:
		t.xxdLines(data, skip, cols, group, digits)
	}
}

func (t *cmd) xxdLines(data []byte, skip int64, cols, group int, digits string) {
	cell := len(fmt.Sprintf(digits, 0))
	for at := 0; at < len(data); at += cols {
		line := data[at:min(len(data), at+cols)]
		var s strings.Builder
		for i := range cols {
			if i < len(line) {
				fmt.Fprintf(&s, digits, line[i])
			} else {
				s.WriteString(strings.Repeat(" ", cell))
			}
			if group > 0 && i%group == group-1 {
				s.WriteByte(' ')
			}
		}
		if group > 0 && cols%group != 0 {
			s.WriteByte(' ')
		}
		fmt.Fprintf(t.out, "%08x: %s %s\n", skip+int64(at), s.String(), printable(line))
	}
}

func (t *cmd) xxdInclude(name string, data []byte, cols int) {
	id := strings.Map(func(r rune) rune {
		if r < 0x80 && wordByte(byte(r)) {
			return r
		}
		return '_'
	}, name)
	if name != "-" {
		fmt.Fprintf(t.out, "unsigned char %s[] = {\n", id)
	}
	for i, b := range data {
		switch {
		case i == 0:
			t.out.WriteString("  ")
		case i%cols == 0:
			t.out.WriteString(",\n  ")
		default:
			t.out.WriteString(", ")
		}
		fmt.Fprintf(t.out, "0x%02x", b)
	}
	if len(data) > 0 {
		t.out.WriteByte('\n')
	}
	if name != "-" {
		fmt.Fprintf(t.out, "};\nunsigned int %s_len = %d;\n", id, len(data))
	}
}

// xxdRevert converts a dump to binary (xxd -r).
func (t *cmd) xxdRevert(data []byte, plain bool) {
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line), "\r\n")
		if !plain {
			_, rest, ok := strings.Cut(text, ":")
			if !ok {
				continue
			}
			text, _, _ = strings.Cut(strings.TrimLeft(rest, " "), "  ")
		}
		hex := strings.ReplaceAll(text, " ", "")
		for len(hex) >= 2 {
			n, err := strconv.ParseUint(hex[:2], 16, 8)
			if err != nil {
				break
			}
			t.out.WriteByte(byte(n))
			hex = hex[2:]
		}
	}
}
