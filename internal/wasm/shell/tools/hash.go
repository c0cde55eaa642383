package tools

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// digest implements md5sum, sha256sum etc.
func digest(make func() hash.Hash) func(*cmd) {
	return func(t *cmd) {
		check, quiet, status := false, false, false
		files := t.options(
			"c check", &check,
			"q quiet", &quiet,
			"s status", func(v string) { status, quiet = true, true },
			"b t w z binary text warn zero", nil,
		)
		if check {
			t.checkSums(make, files, quiet, status)
			return
		}
		t.each(files, func(name string, r io.Reader) {
			if sum, ok := t.sum(make, name, r); ok {
				fmt.Fprintf(t.out, "%s  %s\n", sum, name)
			}
		})
	}
}

func (t *cmd) sum(make func() hash.Hash, name string, r io.Reader) (string, bool) {
	h := make()
	if err := t.copyData(h, r); err != nil {
		t.failed(name, err)
		return "", false
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

func (t *cmd) checkSums(make func() hash.Hash, files []string, quiet, status bool) {
	bad, missing := 0, 0
	t.each(files, func(list string, r io.Reader) {
		for line := range t.lines(list, r, '\n') {
			sum, name, ok := strings.Cut(string(line), " ")
			if !ok || name == "" {
				continue
			}
			name = strings.TrimPrefix(strings.TrimPrefix(name, " "), "*")
			f, err := t.open(name)
			if err != nil {
				t.failed(name, err)
				missing++
				if !status {
					fmt.Fprintf(t.out, "%s: FAILED open or read\n", name)
				}
				continue
			}
			got, ok := t.sum(make, name, f)
			f.Close()
			switch {
			case !ok || !strings.EqualFold(got, sum):
				bad++
				if !status {
					fmt.Fprintf(t.out, "%s: FAILED\n", name)
				}
			case !quiet:
				fmt.Fprintf(t.out, "%s: OK\n", name)
			}
		}
	})
	t.flush()
	if bad > 0 {
		t.errorf("WARNING: %d computed checksum did NOT match", bad)
	}
	if missing > 0 {
		t.errorf("WARNING: %d listed file could not be read", missing)
	}
}

var (
	md5sum    = digest(md5.New)
	sha1sum   = digest(sha1.New)
	sha224sum = digest(sha256.New224)
	sha256sum = digest(sha256.New)
	sha384sum = digest(sha512.New384)
	sha512sum = digest(sha512.New)
)

// cksum implements the checksum of POSIX.
func cksum(t *cmd) {
	files := t.options()
	t.each(files, func(name string, r io.Reader) {
		crc, n := uint32(0), uint64(0)
		step := func(b byte) {
			crc ^= uint32(b) << 24
			for range 8 {
				if crc&0x80000000 != 0 {
					crc = crc<<1 ^ 0x04c11db7
				} else {
					crc <<= 1
				}
			}
		}
		buf := make([]byte, 32<<10)
		for {
			k, err := r.Read(buf)
			for _, b := range buf[:k] {
				step(b)
			}
			n += uint64(k)
			if err != nil {
				if err != io.EOF {
					t.failed(name, err)
				}
				break
			}
		}
		for size := n; size > 0; size >>= 8 {
			step(byte(size))
		}
		if name == "-" {
			fmt.Fprintf(t.out, "%d %d\n", ^crc, n)
			return
		}
		fmt.Fprintf(t.out, "%d %d %s\n", ^crc, n, name)
	})
}

// baseN implements base64 and base32.
func baseN(t *cmd) {
	decode, ignore, wrap := false, false, 76
	files := t.options(
		"d decode", &decode,
		"i ignore-garbage", &ignore,
		"w: wrap", t.integer("wrap size", &wrap),
	)
	t.each(files, func(name string, r io.Reader) {
		if decode {
			t.baseDecode(name, r, ignore)
			return
		}
		w := &lineFolder{w: t.out, width: wrap}
		var enc io.WriteCloser = base64.NewEncoder(base64.StdEncoding, w)
		if t.name == "base32" {
			enc = base32.NewEncoder(base32.StdEncoding, w)
		}
		t.report(t.copyData(enc, r), "%s", name)
		_ = enc.Close()
		if w.column > 0 && wrap > 0 {
			t.out.WriteByte('\n')
		}
	})
}

func (t *cmd) baseDecode(name string, r io.Reader, ignore bool) {
	data := t.readAll(name, r)
	keep := make([]byte, 0, len(data))
	for _, b := range data {
		letter := b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || b == '+' || b == '/' || b == '='
		if b != '\n' && b != '\r' && (letter || !ignore) {
			keep = append(keep, b)
		}
	}
	var out []byte
	var err error
	if t.name == "base32" {
		out, err = base32.StdEncoding.AppendDecode(nil, keep)
	} else {
		out, err = base64.StdEncoding.AppendDecode(nil, keep)
		if err != nil && len(keep)%4 != 0 {
			out, _ = base64.StdEncoding.AppendDecode(nil, keep[:len(keep)/4*4])
		}
	}
	t.out.Write(out)
	if err != nil {
		t.flush()
		t.errorf("invalid input")
	}
}

// lineFolder folds lines at a width; 0: never.
type lineFolder struct {
	w             *bufio.Writer
	width, column int
}

func (w *lineFolder) Write(p []byte) (int, error) {
	n := len(p)
	if w.width <= 0 {
		return w.w.Write(p)
	}
	for len(p) > 0 {
		k := min(len(p), w.width-w.column)
		w.w.Write(p[:k])
		p = p[k:]
		if w.column += k; w.column == w.width {
			w.w.WriteByte('\n')
			w.column = 0
		}
	}
	return n, nil
}

func cmpTool(t *cmd) {
	silent, list, limit := false, false, int64(-1)
	files := t.options(
		"s silent quiet", &silent,
		"l verbose", &list,
		"n: bytes", t.amount("bytes", &limit),
	)
	if len(files) == 1 {
		files = append(files, "-")
	}
	if len(files) != 2 {
		t.fatal(2, "missing operand after '%s'", t.name)
	}
	var in [2]*bufio.Reader
	for i, f := range files {
		r, err := t.open(f)
		if err != nil {
			if !silent {
				t.warn("%s: %s", f, program.ErrorText(err))
			}
			panic(ended{2})
		}
		defer r.Close()
		in[i] = bufio.NewReaderSize(r, 64<<10)
	}
	line, width := 1, 1
	if list {
		width = t.cmpWidth(files)
	}
	for pos := int64(1); limit < 0 || pos <= limit; pos++ {
		a, errA := in[0].ReadByte()
		b, errB := in[1].ReadByte()
		switch {
		case errA != nil && errB != nil:
			return
		case errA != nil || errB != nil:
			short := files[0]
			if errB != nil {
				short = files[1]
			}
			t.status = 1
			if !silent {
				t.flush()
				t.warn("EOF on %s after byte %d, line %d", short, pos-1, line)
			}
			return
		case a != b:
			t.status = 1
			if list {
				fmt.Fprintf(t.out, "%*d %3o %3o\n", width, pos, a, b)
				continue
			}
			if !silent {
				fmt.Fprintf(t.out, "%s %s differ: byte %d, line %d\n", files[0], files[1], pos, line)
			}
			return
		}
		if a == '\n' {
			line++
		}
	}
}

// cmpWidth returns the number of digits of the offsets of cmp -l.
func (t *cmd) cmpWidth(files []string) int {
	least := int64(0)
	for i, f := range files {
		info, err := t.FS.Stat(t.Dir, f)
		if err != nil {
			return 1
		}
		if i == 0 || info.Size() < least {
			least = info.Size()
		}
	}
	return len(fmt.Sprint(least))
}

func stringsTool(t *cmd) {
	least, radix, named := 4, "", false
	files := t.options(
		"n: bytes", t.integer("minimum string length", &least),
		"t: radix", &radix,
		"o", set(&radix, "d"),
		"f print-file-name", &named,
		"a all", nil,
	)
	verb := map[string]string{"": "", "d": "%7d ", "o": "%7o ", "x": "%7x "}[radix]
	if verb == "" && radix != "" {
		t.fatal(1, "invalid radix: '%s'", radix)
	}
	t.each(files, func(name string, r io.Reader) {
		var run bytes.Buffer
		buf := bufio.NewReader(r)
		for at := 0; ; at++ {
			c, err := buf.ReadByte()
			if err == nil && (c >= ' ' && c < 0x7f || c == '\t') {
				if run.Len() < maxLine {
					run.WriteByte(c)
				}
				continue
			}
			if run.Len() >= max(1, least) {
				if named {
					t.out.WriteString(name + ": ")
				}
				if verb != "" {
					fmt.Fprintf(t.out, verb, at-run.Len())
				}
				fmt.Fprintf(t.out, "%s\n", run.Bytes())
			}
			run.Reset()
			if err != nil {
				return
			}
		}
	})
}
