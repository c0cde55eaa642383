package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func frameOf(kind byte, data string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(data)))) + data
}

// records decodes in pieces of a size and returns the events as text.
func records(in []byte, piece int) (string, error) {
	var b strings.Builder
	d := decoder{frame: func(kind byte, data []byte) error {
		if kind != stdout && kind != stderr || b.Len() == 0 || b.String()[b.Len()-1] == '>' {
			b.WriteString(string(kind) + "<")
		}
		b.Write(data)
		if kind != stdout && kind != stderr {
			b.WriteString(">")
		}
		return nil
	}}
	for len(in) > 0 {
		n := min(piece, len(in))
		if _, err := d.Write(in[:n]); err != nil {
			return b.String(), err
		}
		in = in[n:]
	}
	return b.String(), nil
}

func TestFrames(t *testing.T) {
	in := []byte(frameOf(ready, "") + frameOf(stdout, "abc") + frameOf(stdout, "") + frameOf(result, `{"text":"x"}`) + frameOf(done, ""))
	for piece := 1; piece <= len(in); piece++ {
		if got, err := records(in, piece); err != nil || got != `k<>o<abcr<{"text":"x"}>d<>` {
			t.Errorf("pieces of %d: %q, %v", piece, got, err)
		}
	}
	for name, bad := range map[string]string{"unknown": "z\x00\x00\x00\x00", "large": "r\xff\xff\xff\xff", "large output": "o\x00\x01\x00\x01", "data": "d\x00\x00\x00\x01"} {
		if _, err := records([]byte(bad), 3); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDecode(t *testing.T) {
	d, err := decodeDisplay([]byte(`{"text":"t","png":"YWJj","json":{"a":[1]},"extra":{"a/b":"c"},"main":true,"later":1}`))
	if err != nil || d.Text != "t" || string(d.PNG) != "abc" || string(d.JSON) != `{"a":[1]}` || string(d.Extra["a/b"]) != `"c"` || !d.Main {
		t.Errorf("%+v, %v", d, err)
	}
	many := `{"extra":{"a":1`
	for i := range maxExtra {
		many += `,"b` + strings.Repeat("x", i) + `":1`
	}
	for name, bad := range map[string]string{"empty": "", "array": "[]", "null": "null", "cut": `{"text":`, "type": `{"text":1}`, "base64": `{"png":"%"}`, "UTF-8": "{\"text\":\"\xff\"}",
		"deep": `{"json":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}", "many": many + "}}"} {
		if _, err := decodeDisplay([]byte(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := decodeError([]byte(`{"name":1}`)); err == nil {
		t.Error("an error with a wrong type: no error")
	}
}

// counter is a Handler that checks that nothing follows the end.
type counter struct {
	t     *testing.T
	ended bool
	bytes int
}

func (c *counter) Output(_ sandbar.Stream, p []byte)   { c.see(len(p)) }
func (c *counter) Display(_ sandbar.Display, size int) { c.see(size) }
func (c *counter) Error(sandbar.CellError)             { c.see(0) }

func (c *counter) see(n int) {
	if c.ended {
		c.t.Error("an event after the cell's end")
	}
	c.bytes += n
}

// FuzzFrames tests that whatever a kernel sends is decoded or ends the connection, independent of
// how it is cut, and that nothing larger than what it sent comes out.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(frameOf(ready, "")+frameOf(stdout, "abc")+frameOf(result, `{"text":"x","png":"YQ=="}`)+frameOf(failure, `{"name":"E"}`)+frameOf(done, "")), byte(3))
	f.Add([]byte("r\x00\x00\x00\x02[]"), byte(1))
	f.Add([]byte("z\xff\xff\xff\xff"), byte(1))
	f.Fuzz(func(t *testing.T, in []byte, piece byte) {
		whole, werr := records(in, max(len(in), 1))
		cut, cerr := records(in, int(piece)+1)
		if whole != cut || (werr == nil) != (cerr == nil) {
			t.Errorf("whole %q, %v; cut %q, %v", whole, werr, cut, cerr)
		}
		c := Language{}.NewConn()
		defer c.Close()
		c.Stdout().Write([]byte(frameOf(ready, "")))
		h := &counter{t: t}
		ended, err := c.Run(Cell{Count: 1}, h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Stdout().Write(in)
		if (err != nil) != (c.Broken() != nil) || err != nil && !errors.Is(c.Broken(), err) {
			t.Errorf("%v, broken %v", err, c.Broken())
		}
		if h.bytes > len(in) {
			t.Errorf("%d bytes of %d", h.bytes, len(in))
		}
		select {
		case <-ended:
			h.ended = true
		default:
		}
	})
}

// FuzzMarks tests that all output of a shell except its mark is passed on, however it is cut.
func FuzzMarks(f *testing.F) {
	f.Add([]byte("out"), []byte("later"), byte(7), byte(1))
	f.Add([]byte("\x00token"), []byte("\x00token 7"), byte(255), byte(2))
	f.Fuzz(func(t *testing.T, before, after []byte, status, piece byte) {
		const token = "0123456789abcdef"
		if bytes.Contains(before, []byte(token)) || bytes.Contains(after, []byte(token)) {
			return
		}
		var out []byte
		found := -1
		m := &marked{output: func(p []byte) { out = append(out, p...) }, found: func(s int) { found = s }}
		m.expect(token)
		in := append(append(bytes.Clone(before), "\x00"+token+" "+strconv.Itoa(int(status))+"\x00"...), after...)
		for n := int(piece) + 1; len(in) > 0; in = in[min(n, len(in)):] {
			m.Write(in[:min(n, len(in))])
		}
		if want := string(before) + string(after); string(out) != want || found != int(status) {
			t.Errorf("output %q, status %d; want %q, %d", out, found, want, status)
		}
	})
}
