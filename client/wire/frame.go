package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The protocols of an upgraded connection.
const (
	// frames, for a command; also the subprotocol of a WebSocket whose binary messages have a whole
	// number of frames each
	UpgradeExec = "sandbar-exec"
	UpgradeTCP  = "tcp" // bytes, for a port
)

// Kind is the kind of a frame.
type Kind byte

// Frames of a client. Request is the first and occurs once.
const (
	Request Kind = 'r' // an Exec, in JSON
	Stdin   Kind = 'i' // bytes of standard input; an empty frame is its end
	Cancel  Kind = 'c' // end the program: TERM, a grace, KILL
	Resize  Kind = 'z' // the terminal's new rows and columns: 2 bytes each, big endian
)

// Frames of a daemon. The last one is Ended or Failed.
const (
	// the client may send that many more bytes of standard input: 4 bytes, big endian
	Credit  Kind = 'w'
	Started Kind = 's' // the program runs
	Stdout  Kind = 'o'
	Stderr  Kind = 'e'
	Ended   Kind = 'x' // a Result, in JSON
	Failed  Kind = 'f' // an Error, in JSON: the platform failed, or did not start the program
)

const (
	// MaxFrame is the most data in one frame, in bytes.
	MaxFrame = 1 << 20
	// Window is the initial credit for standard input, in bytes.
	Window = 256 << 10

	headerSize = 5 // kind, length (4 bytes, big endian)
)

// AppendHeader appends the header of a frame with size bytes of data, which follow it.
func AppendHeader(b []byte, k Kind, size int) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(size))
}

// Append appends a complete frame.
func Append(b []byte, k Kind, data []byte) []byte {
	return append(AppendHeader(b, k, len(data)), data...)
}

// AppendCredit appends a frame Credit.
func AppendCredit(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(b, Credit, 4), uint32(n))
}

// CreditOf decodes the data of a Credit frame.
func CreditOf(data []byte) (int, error) {
	if len(data) != 4 {
		return 0, fmt.Errorf("a credit of %d bytes where 4 are needed", len(data))
	}
	n := binary.BigEndian.Uint32(data)
	if n > Window {
		return 0, fmt.Errorf("a credit for %d bytes, and at most %d can be open", n, Window)
	}
	return int(n), nil
}

// AppendResize appends a frame Resize. The size must be in range.
func AppendResize(b []byte, s TerminalSize) []byte {
	b = binary.BigEndian.AppendUint16(AppendHeader(b, Resize, 4), uint16(s.Rows))
	return binary.BigEndian.AppendUint16(b, uint16(s.Cols))
}

// SizeOf decodes the data of a Resize frame. The size may be out of range.
func SizeOf(data []byte) (TerminalSize, error) {
	if len(data) != 4 {
		return TerminalSize{}, fmt.Errorf("a terminal's size of %d bytes where 4 are needed", len(data))
	}
	return TerminalSize{Rows: int(binary.BigEndian.Uint16(data)), Cols: int(binary.BigEndian.Uint16(data[2:]))}, nil
}

var errLarge = errors.New("a frame is larger than the protocol allows")

// Reader reads frames. Its memory grows to the largest frame read.
type Reader struct {
	r      io.Reader
	header [headerSize]byte
	data   []byte
}

// NewReader returns a Reader of r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads one frame. data is valid until the next call. The error is io.EOF only between frames.
func (r *Reader) Next() (k Kind, data []byte, err error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(r.header[1:])
	if size > MaxFrame {
		return 0, nil, errLarge
	}
	if int(size) > cap(r.data) {
		r.data = make([]byte, max(int(size), 32<<10))
	}
	r.data = r.data[:size]
	if _, err := io.ReadFull(r.r, r.data); err != nil {
		return 0, nil, fmt.Errorf("a frame is cut: %w", noEOF(err))
	}
	return Kind(r.header[0]), r.data, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
