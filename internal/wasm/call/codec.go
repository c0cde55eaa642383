package call

import (
	"encoding/binary"
	"errors"
)

var (
	errShort    = errors.New("call: frame is cut short")
	errTrailing = errors.New("call: bytes after the end of a message")
	errLong     = errors.New("call: frame is longer than MaxFrame")
	errKind     = errors.New("call: frame of an unexpected kind")
)

func u32(b []byte, v uint32) []byte     { return binary.LittleEndian.AppendUint32(b, v) }
func u64(b []byte, v uint64) []byte     { return binary.LittleEndian.AppendUint64(b, v) }
func i64(b []byte, v int64) []byte      { return u64(b, uint64(v)) }
func str(b []byte, s string) []byte     { return append(u32(b, uint32(len(s))), s...) }
func bytesOf(b []byte, v []byte) []byte { return append(u32(b, uint32(len(v))), v...) }

func strs(b []byte, ss []string) []byte {
	b = u32(b, uint32(len(ss)))
	for _, s := range ss {
		b = str(b, s)
	}
	return b
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// decoder reads a message. After the first failure every method returns zero, so a caller decodes
// the whole message and checks once, at the end.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || n < 0 || n > len(d.b) {
		d.failed = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
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

func (d *decoder) i64() int64    { return int64(d.u64()) }
func (d *decoder) bool() bool    { return d.u8() != 0 }
func (d *decoder) str() string   { return string(d.take(int(d.u32()))) }
func (d *decoder) bytes() []byte { return d.take(int(d.u32())) }

// strs reads strings of at least four bytes each. It fails if the rest of the frame is too short
// for them, so a false number cannot make the caller allocate more memory than the frame's own
// size.
func (d *decoder) strs() []string {
	n := int(d.u32())
	if d.failed || n > len(d.b)/4 {
		d.failed = true
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

// Append appends the encoding of m.
func (m *Run) Append(b []byte) []byte {
	b = strs(strs(append(b, byte(m.Language)), m.Args), m.Env)
	return i64(str(b, m.Dir), m.Memory)
}

// Decode reads m from a payload.
func (m *Run) Decode(p []byte) error {
	d := decoder{b: p}
	m.Language = Language(d.u8())
	m.Args, m.Env, m.Dir = d.strs(), d.strs(), d.str()
	m.Memory = d.i64()
	return d.end()
}

// Append appends the encoding of m.
func (m *Load) Append(b []byte) []byte { return append(b, byte(m.Language)) }

// Decode reads m from a payload.
func (m *Load) Decode(p []byte) error {
	d := decoder{b: p}
	m.Language = Language(d.u8())
	return d.end()
}

// Append appends the encoding of m.
func (m *Done) Append(b []byte) []byte {
	b = i64(i64(append(b, m.Code), m.CPU), m.Memory)
	return str(append(b, bit(m.Denied), bit(m.Fault)), m.Text)
}

// Decode reads m from a payload.
func (m *Done) Decode(p []byte) error {
	d := decoder{b: p}
	m.Code, m.CPU, m.Memory = d.u8(), d.i64(), d.i64()
	m.Denied, m.Fault, m.Text = d.bool(), d.bool(), d.str()
	return d.end()
}

// Append appends the encoding of m.
func (m *Request) Append(b []byte) []byte {
	b = u32(u32(u32(append(b, byte(m.Op)), m.Handle), m.Flags), m.Mode)
	b = str(str(i64(i64(b, m.Offset), m.Size), m.Path), m.To)
	return bytesOf(b, m.Data)
}

// Decode reads m from a payload. Data shares memory with the payload.
func (m *Request) Decode(p []byte) error {
	d := decoder{b: p}
	m.Op = Op(d.u8())
	m.Handle, m.Flags, m.Mode = d.u32(), d.u32(), d.u32()
	m.Offset, m.Size = d.i64(), d.i64()
	m.Path, m.To, m.Data = d.str(), d.str(), d.bytes()
	return d.end()
}

// Append appends the encoding of m.
func (m *Answer) Append(b []byte) []byte {
	b = append(b, byte(m.Errno))
	b = i64(u32(b, m.Handle), m.Size)
	s := &m.Stat
	b = i64(u64(b, s.Inode), s.Size)
	b = i64(i64(i64(b, s.ATime), s.MTime), s.CTime)
	b = append(u32(u32(b, s.Links), s.Mode), byte(s.Type))
	return bytesOf(b, m.Data)
}

// Decode reads m from a payload. Data shares memory with the payload.
func (m *Answer) Decode(p []byte) error {
	d := decoder{b: p}
	m.Errno, m.Handle, m.Size = Errno(d.u8()), d.u32(), d.i64()
	s := &m.Stat
	s.Inode, s.Size = d.u64(), d.i64()
	s.ATime, s.MTime, s.CTime = d.i64(), d.i64(), d.i64()
	s.Links, s.Mode, s.Type = d.u32(), d.u32(), Type(d.u8())
	m.Data = d.bytes()
	return d.end()
}

// AppendEntry appends the encoding of e.
func AppendEntry(b []byte, e *Entry) []byte {
	return append(u64(str(b, e.Name), e.Inode), byte(e.Type))
}

// DecodeEntries reads what AppendEntry wrote, and appends it to list.
func DecodeEntries(p []byte, list []Entry) ([]Entry, error) {
	d := decoder{b: p}
	for len(d.b) > 0 && !d.failed {
		e := Entry{Name: d.str(), Inode: d.u64()}
		e.Type = Type(d.u8())
		list = append(list, e)
	}
	return list, d.end()
}

// Append appends the encoding of m.
func (m *Command) Append(b []byte) []byte {
	return bytesOf(str(strs(strs(b, m.Args), m.Env), m.Dir), m.Input)
}

// Decode reads m from a payload. Input shares memory with the payload.
func (m *Command) Decode(p []byte) error {
	d := decoder{b: p}
	m.Args, m.Env, m.Dir, m.Input = d.strs(), d.strs(), d.str(), d.bytes()
	return d.end()
}
