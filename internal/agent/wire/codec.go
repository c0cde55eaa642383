package wire

import (
	"encoding/binary"
	"errors"
)

var (
	errShort    = errors.New("wire: frame is cut short")
	errTooLong  = errors.New("wire: frame is longer than MaxPayload")
	errHeader   = errors.New("wire: header is malformed")
	errEvent    = errors.New("wire: malformed file event")
	errTrailing = errors.New("wire: bytes after the end of a message")
)

func appendU16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func appendU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func appendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }
func appendStr(b []byte, s string) []byte { return append(appendU32(b, uint32(len(s))), s...) }
func appendStrs(b []byte, ss []string) []byte {
	b = appendU32(b, uint32(len(ss)))
	for _, s := range ss {
		b = appendStr(b, s)
	}
	return b
}

// decoder reads a message. After the first failure every method returns zero, so a caller decodes
// the whole message and checks once, with end.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || n < 0 || n > len(d.b) {
		d.failed = true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if v := d.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// truth reads a byte that must be 0 or 1.
func (d *decoder) truth() bool {
	v := d.u8()
	d.failed = d.failed || v > 1
	return v == 1
}

func (d *decoder) str() string   { return string(d.take(int(d.u32()))) }
func (d *decoder) bytes() []byte { return d.take(int(d.u32())) }

// count reads a number of elements of at least size bytes each. It fails if the rest of the frame
// is too short for them, so a false number cannot make the caller allocate more memory than the
// frame's own size.
func (d *decoder) count(size int) int {
	n := int(d.u32())
	if d.failed || n > len(d.b)/size {
		d.failed = true
		return 0
	}
	return n
}

func (d *decoder) strs() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	ss := make([]string, n)
	for i := range ss {
		ss[i] = d.str()
	}
	return ss
}

func (d *decoder) end() error {
	switch {
	case d.failed:
		return errShort
	case len(d.b) != 0:
		return errTrailing
	}
	return nil
}
