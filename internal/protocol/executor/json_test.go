package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func readerOf(text string, most int64) *jsonReader {
	return newJSONReader(strings.NewReader(text), make([]byte, 64), most)
}

func TestReadCommand(t *testing.T) {
	with := extras{timeout: true, encoding: true}
	for text, want := range map[string]command{
		`{}`:                              {},
		` { "cmd" : "ls" } ` + "\n":       {cmd: "ls"},
		`{"cmd":"a","cwd":"/b","env":{}}`: {cmd: "a", cwd: "/b", env: map[string]string{}},
		`{"env":{"A":"1","":"2"},"cmd":null,"cwd":null}`:                   {env: map[string]string{"A": "1", "": "2"}},
		`{"cmd":"\"\\\/\b\f\n\r\t\u0041\u00e9\ud834\udd1e€"}`:              {cmd: "\"\\/\b\f\n\r\tAé𝄞€"},
		`{"timeout":1.5e1,"encoding":"base64"}`:                            {timeout: 15, timed: true, encoding: "base64"},
		`{"timeout":1e999}`:                                                {timeout: math.Inf(1), timed: true},
		`{"x":[1,-0.5,{"y":[[],{}]},true,false,null,"z"],"x":2,"cmd":"a"}`: {cmd: "a"},
		`{"CMD":"no","Cmd":"no","cmd":"yes"}`:                              {cmd: "yes"},
		`{"cmd":"` + strings.Repeat("x", 1000) + `"}`:                      {cmd: strings.Repeat("x", 1000)},
	} {
		for _, src := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			got, err := readCommand(newJSONReader(src, make([]byte, 64), 1<<20), with)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%.80s: %+v, %v", text, got, err)
			}
		}
	}
	if c, err := readCommand(readerOf(`{"timeout":"x","encoding":7}`, 1<<20), extras{}); err != nil || c.timed {
		t.Errorf("fields that an endpoint does not know: %v", err)
	}
}

// badRequests are bodies that no endpoint accepts.
var badRequests = map[string]string{
	"empty":             ``,
	"blank":             "  \n",
	"byte order mark":   "\xef\xbb\xbf{}",
	"not an object":     `["cmd"]`,
	"a string":          `"cmd"`,
	"null":              `null`,
	"cut":               `{"cmd":"l`,
	"cut after a value": `{"cmd":"ls"`,
	"cut escape":        `{"cmd":"\u00`,
	"trailing comma":    `{"cmd":"ls",}`,
	"no comma":          `{"cmd":"ls" "cwd":"/"}`,
	"no colon":          `{"cmd" "ls"}`,
	"two values":        `{"cmd":"ls"}{}`,
	"garbage after":     `{"cmd":"ls"} x`,
	"NUL after":         "{\"cmd\":\"ls\"}\x00",
	"single quotes":     `{'cmd':'ls'}`,
	"bare name":         `{cmd:"ls"}`,
	"number for text":   `{"cmd":7,"path":7,"id":7,"port":8080}`,
	"object for text":   `{"cmd":{},"path":{},"id":{},"port":{}}`,
	"array for text":    `{"cmd":["ls"],"path":["x"],"id":["x"],"port":["1"]}`,
	"bool for text":     `{"cmd":true,"path":true,"id":true,"port":true}`,
	"twice":             `{"cmd":"a","cmd":"b","path":"a","path":"b","id":"a","id":"b","port":"1","port":"2"}`,
	"twice, escaped":    `{"cmd":"a","\u0063md":"b","path":"a","\u0070ath":"b","id":"a","\u0069d":"b","port":"1","\u0070ort":"2"}`,
	"control character": "{\"cmd\":\"a\nb\",\"path\":\"a\nb\",\"id\":\"a\nb\",\"port\":\"a\nb\"}",
	"bad escape":        `{"cmd":"\x41"}`,
	"bad UTF-8":         "{\"cmd\":\"\xff\"}",
	"cut UTF-8":         "{\"cmd\":\"\xe2\x82\"}",
	"overlong UTF-8":    "{\"cmd\":\"\xc0\x80\"}",
	"lone surrogate":    `{"cmd":"\ud800"}`,
	"low before high":   `{"cmd":"\udc00\ud800"}`,
	"high then text":    `{"cmd":"\ud800x"}`,
	"high then high":    `{"cmd":"\ud800\ud800"}`,
	"bad word":          `{"x":nul}`,
	"bad number":        `{"x":01}`,
	"plus":              `{"x":+1}`,
	"NaN":               `{"x":NaN}`,
	"dot":               `{"x":1.}`,
	"exponent":          `{"x":1e}`,
	"very long number":  `{"x":` + strings.Repeat("1", 100) + `}`,
	"deep":              strings.Repeat(`{"x":`, 100) + `1` + strings.Repeat(`}`, 100),
	"deep arrays":       `{"x":` + strings.Repeat(`[`, 100000),
	"many members":      `{` + strings.Repeat(`"x":1,`, maxMembers) + `"cmd":"ls"}`,
}

func TestBadJSON(t *testing.T) {
	for name, text := range badRequests {
		_, err := readCommand(readerOf(text, 1<<30), extras{})
		if !errors.Is(err, errSyntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{`{"env":{"A":1}}`, `{"env":[]}`, `{"env":{"A":null}}`, `{"env":{"A":"1","A":"2"}}`, `{"timeout":"1"}`, `{"encoding":1}`} {
		if _, err := readCommand(readerOf(text, 1<<20), extras{true, true}); !errors.Is(err, errSyntax) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTooLarge tests that the part of a body that is held in memory is bounded exactly, and that
// streamed content does not count.
func TestTooLarge(t *testing.T) {
	body := `{"cmd":"` + strings.Repeat("x", 500) + `"}`
	if _, err := readCommand(readerOf(body, int64(len(body))), extras{}); err != nil {
		t.Errorf("as large as is allowed: %v", err)
	}
	if _, err := readCommand(readerOf(body, int64(len(body))-1), extras{}); !errors.Is(err, errTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	for _, text := range []string{`{"x":"` + strings.Repeat(`\n`, 500) + `"}`, `{"x":[` + strings.Repeat("1,", 500) + `1]}`, strings.Repeat(" ", 1000) + "{}", "{}" + strings.Repeat(" ", 1000)} {
		if _, err := readCommand(readerOf(text, 400), extras{}); !errors.Is(err, errTooLarge) {
			t.Errorf("%.20s…: %v", text, err)
		}
	}
	var n int
	f := fields{"content": func(j *jsonReader) error {
		return j.stream(func(p []byte) error { n += len(p); return nil })
	}}
	text := `{"content":"` + strings.Repeat(`x€\n`, 100000) + `"}`
	if err := f.read(readerOf(text, 100)); err != nil || n != 500000 {
		t.Errorf("streamed: %v, %d bytes", err, n)
	}
	if err := f.read(readerOf(text+strings.Repeat(" ", 200), 100)); !errors.Is(err, errTooLarge) {
		t.Errorf("streamed, and too much after it: %v", err)
	}
}

func TestBodyErrorsAreKept(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader(`{"cmd":"l`), iotest.ErrReader(broken))
	if _, err := readCommand(newJSONReader(src, make([]byte, 64), 1000), extras{}); err != broken {
		t.Errorf("%v", err)
	}
}

// FuzzRequest tests that a body is accepted if encoding/json accepts it, with the same result,
// without a panic, however the body is split.
func FuzzRequest(f *testing.F) {
	for _, text := range badRequests {
		if len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte(`{"cmd":"a\u00e9\ud834\udd1e","cwd":"/b","env":{"A":"1"},"timeout":1e1,"encoding":"base64"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		with := extras{true, true}
		got, err := readCommand(newJSONReader(bytes.NewReader(text), make([]byte, 16), 1<<20), with)
		again, err2 := readCommand(newJSONReader(iotest.OneByteReader(bytes.NewReader(text)), make([]byte, 4096), 1<<20), with)
		if (err == nil) != (err2 == nil) || err == nil && (got.cmd != again.cmd || got.cwd != again.cwd || len(got.env) != len(again.env)) {
			t.Fatalf("%q: %v and %v", text, err, err2)
		}
		if err != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("accepted %q: %v", text, err)
		}
		if cmd, _ := want["cmd"].(string); cmd != got.cmd {
			t.Fatalf("%q: cmd %q, want %q", text, got.cmd, cmd)
		}
	})
}

// FuzzContent tests that streamed content equals content decoded at once.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"path":"/x","content":"a\nb\u00e9€"}`), uint8(3))
	f.Add([]byte(`{"content":"","path":"\u0000"}`), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var whole string
		err := fields{"content": func(j *jsonReader) (err error) { whole, err = j.text(); return err }}.
			read(newJSONReader(bytes.NewReader(text), make([]byte, 4096), 1<<20))
		var pieces strings.Builder
		err2 := fields{"content": func(j *jsonReader) error {
			return j.stream(func(p []byte) error { pieces.Write(p); return nil })
		}}.read(newJSONReader(bytes.NewReader(text), make([]byte, 16+int(size)), 1<<20))
		if (err == nil) != (err2 == nil) || err == nil && whole != pieces.String() {
			t.Fatalf("%q: %v %q, streamed %v %q", text, err, whole, err2, pieces.String())
		}
	})
}
