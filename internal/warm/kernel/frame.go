package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// A frame is its kind in 1 byte, the length of its data in 4 bytes (big endian), and the data.
//
// The host sends request frames: a Cell in JSON. The kernel sends ready once. For each request it
// then sends any number of outputs, results and errors, and finally done. Outputs may also come
// between two cells.
const (
	request = 'x' // host to kernel: a Cell
	ready   = 'k' // no data
	stdout  = 'o' // bytes
	stderr  = 'e' // bytes
	result  = 'r' // a sandbar.Display
	failure = 'f' // a sandbar.CellError
	done    = 'd' // no data
)

const (
	headerSize = 5
	// maxOutput, maxResult and maxError bound the data of a frame, in bytes.
	maxOutput = 64 << 10
	maxResult = 8 << 20
	maxError  = 1 << 20
	// maxDepth bounds the nesting of JSON in results, maxExtra their further representations.
	maxDepth = 64
	maxExtra = 32
)

// maxOf returns the largest size of a frame's data. It is negative for an unknown kind.
func maxOf(kind byte) int {
	switch kind {
	case ready, done:
		return 0
	case stdout, stderr:
		return maxOutput
	case result:
		return maxResult
	case failure:
		return maxError
	}
	return -1
}

// decoder splits a kernel's standard output into frames. Its memory is at most the largest frame.
type decoder struct {
	// frame receives each frame: outputs in pieces as they arrive, the others whole. data is valid
	// during the call.
	frame func(kind byte, data []byte) error

	header [headerSize]byte
	have   int // bytes of header
	left   int // bytes of data that are missing
	data   []byte
	err    error
}

// Write decodes the next bytes. After an error it returns the same error.
func (d *decoder) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 && d.err == nil {
		p, d.err = d.step(p)
	}
	return size - len(p), d.err
}

func (d *decoder) step(p []byte) ([]byte, error) {
	if d.have < headerSize {
		n := copy(d.header[d.have:], p)
		d.have += n
		if p = p[n:]; d.have < headerSize {
			return p, nil
		}
		size, most := binary.BigEndian.Uint32(d.header[1:]), maxOf(d.header[0])
		if most < 0 {
			return p, fmt.Errorf("it sent a frame of the unknown kind %q", d.header[0])
		}
		if uint64(size) > uint64(most) {
			return p, fmt.Errorf("it sent a frame of kind %q with %d bytes; at most %d are allowed", d.header[0], size, most)
		}
		d.left = int(size)
	}
	kind, piece := d.header[0], p[:min(len(p), d.left)]
	p, d.left = p[len(piece):], d.left-len(piece)
	if kind == stdout || kind == stderr {
		if d.left == 0 {
			d.have = 0
		}
		if len(piece) == 0 {
			return p, nil
		}
		return p, d.frame(kind, piece)
	}
	d.data = append(d.data, piece...)
	if d.left > 0 {
		return p, nil
	}
	err := d.frame(kind, d.data)
	d.have, d.data = 0, nil
	return p, err
}

// decodeDisplay decodes the data of a result.
func decodeDisplay(data []byte) (sandbar.Display, error) {
	var v sandbar.Display
	if err := decode(data, &v); err != nil {
		return v, fmt.Errorf("it sent a result that %w", err)
	}
	if len(v.Extra) > maxExtra {
		return v, fmt.Errorf("it sent a result with %d further representations; at most %d are allowed", len(v.Extra), maxExtra)
	}
	return v, nil
}

// decodeError decodes the data of an error.
func decodeError(data []byte) (sandbar.CellError, error) {
	var v sandbar.CellError
	if err := decode(data, &v); err != nil {
		return v, fmt.Errorf("it sent an error that %w", err)
	}
	return v, nil
}

func decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	if depth(data) > maxDepth {
		return fmt.Errorf("is nested deeper than %d", maxDepth)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || json.Unmarshal(data, v) != nil {
		return errors.New("is malformed")
	}
	return nil
}

// depth returns how deep the arrays and objects of a JSON text are nested.
func depth(data []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// appendRequest appends a request frame.
func appendRequest(b []byte, c Cell) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	b = binary.BigEndian.AppendUint32(append(b, request), uint32(len(data)))
	return append(b, data...), nil
}

func unknown(name string, names []string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "language",
		Message: "there are no contexts of language " + sandbar.Quote(name, 40), Fix: "available are " + strings.Join(names, ", ")}
}
