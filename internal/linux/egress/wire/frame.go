// Package wire has what the daemon and the process of the TCP/IP stacks share: the addresses of a
// sandbox's link, and the frames of their connection.
//
// A frame is one message of a SOCK_SEQPACKET pair, at most MaxFrame bytes. The daemon sends Rules
// frames, one Start, and then Names, Attach, Restrict and Detach frames. The stack's process sends
// Ready, Detached, Restricted and Note frames. Each side closes the connection at the first
// malformed or unexpected frame.
package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
)

// Kind is the kind of a frame.
type Kind uint8

// The kinds. The daemon sends the first six, the stack's process the others.
const (
	// Rules adds to the operator's rules. Fields: Allow, Deny, Ports.
	Rules Kind = iota + 1
	// Start follows the last Rules frame. Fields: MaxConnections, MaxBytes.
	Start
	// Names replaces the name servers. Field: Servers.
	Names
	// Attach passes a link: its TUN device and its ledger. Fields: Link, Allow, Deny.
	Attach
	// Restrict replaces the restriction of a link: it denies Deny, except for Allow. Fields: Link,
	// Allow, Deny.
	Restrict
	// Detach closes a link. Field: Link.
	Detach
	// Ready reports that the process has confined itself.
	Ready
	// Detached reports that a link is closed. Field: Link.
	Detached
	// Restricted reports that a Restrict is in force. Field: Link.
	Restricted
	// Note reports an event of a link. Fields: Link, Event.
	Note
)

// Event is the event of a Note.
type Event uint8

// The events. A process reports each at most once per link.
const (
	// UsedUp: the link has reached MaxBytes.
	UsedUp Event = iota + 1
	// Broken: no stack or no ledger could be created for the link.
	Broken

	lastEvent = Broken
)

// Frame is a frame. Fields that its kind does not use are zero.
type Frame struct {
	Kind           Kind
	Link           uint32
	Event          Event
	Allow, Deny    []netip.Prefix
	Ports          []uint16
	MaxConnections uint32 // per sandbox; not 0
	MaxBytes       uint64 // per sandbox; 0 means no bound
	Servers        []netip.AddrPort
}

// Bounds of a frame.
const (
	// MaxFrame is in bytes.
	MaxFrame = 4096
	// MaxList is the most entries in one list of a frame.
	MaxList = 64
	// MaxConnections is the largest MaxConnections of a Start.
	MaxConnections = 1 << 17
	// MaxRules is the most entries of one list in all Rules frames together.
	MaxRules = 1 << 16
)

// errFrame is the error of malformed bytes.
var errFrame = errors.New("malformed frame")

// Append appends the frame to b.
func (f *Frame) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, byte(f.Kind))
	switch f.Kind {
	case Rules:
		b = append(f.appendRanges(b), byte(len(f.Ports)))
		for _, p := range f.Ports {
			b = le.AppendUint16(b, p)
		}
	case Start:
		b = le.AppendUint64(le.AppendUint32(b, f.MaxConnections), f.MaxBytes)
	case Names:
		b = append(b, byte(len(f.Servers)))
		for _, s := range f.Servers {
			scope, _ := strconv.ParseUint(s.Addr().Zone(), 10, 32) // no zone: 0
			b = le.AppendUint32(le.AppendUint16(appendAddr(b, s.Addr()), s.Port()), uint32(scope))
		}
	case Attach, Restrict:
		b = f.appendRanges(le.AppendUint32(b, f.Link))
	case Detach, Detached, Restricted:
		b = le.AppendUint32(b, f.Link)
	case Note:
		b = append(le.AppendUint32(b, f.Link), byte(f.Event))
	}
	return b
}

func (f *Frame) appendRanges(b []byte) []byte {
	for _, list := range [][]netip.Prefix{f.Allow, f.Deny} {
		b = append(b, byte(len(list)))
		for _, p := range list {
			b = append(appendAddr(b, p.Addr()), byte(p.Bits()))
		}
	}
	return b
}

func appendAddr(b []byte, a netip.Addr) []byte {
	raw := a.AsSlice()
	return append(append(b, byte(len(raw))), raw...)
}

// Decode decodes a frame. It fails for bytes that Append does not produce.
func Decode(b []byte) (Frame, error) {
	d := decoder{b: b}
	f := Frame{Kind: Kind(d.uint(1))}
	switch f.Kind {
	case Rules:
		f.Allow, f.Deny = d.prefixes(), d.prefixes()
		for range d.count(MaxList) {
			f.Ports = append(f.Ports, uint16(d.uint(2)))
		}
	case Start:
		f.MaxConnections, f.MaxBytes = uint32(d.uint(4)), d.uint(8)
		d.check(f.MaxConnections > 0 && f.MaxConnections <= MaxConnections && f.MaxBytes <= 1<<63-1)
	case Names:
		for range d.count(MaxServers) {
			f.Servers = append(f.Servers, d.server())
		}
	case Attach, Restrict:
		f.Link, f.Allow, f.Deny = uint32(d.uint(4)), d.prefixes(), d.prefixes()
	case Detach, Detached, Restricted:
		f.Link = uint32(d.uint(4))
	case Ready:
	case Note:
		f.Link, f.Event = uint32(d.uint(4)), Event(d.uint(1))
		d.check(f.Event > 0 && f.Event <= lastEvent)
	default:
		d.bad = true
	}
	if d.bad || len(d.b) > 0 || len(b) > MaxFrame {
		return Frame{}, errFrame
	}
	return f, nil
}

// decoder reads from b. If bad is set, the values read are invalid.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) check(ok bool) { d.bad = d.bad || !ok }

// take returns the next n bytes, zeros if there are fewer.
func (d *decoder) take(n int) []byte {
	if d.bad || len(d.b) < n {
		d.bad = true
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

// uint reads a number of n bytes.
func (d *decoder) uint(n int) uint64 {
	var x [8]byte
	copy(x[:], d.take(n))
	return binary.LittleEndian.Uint64(x[:])
}

// count reads the length of a list.
func (d *decoder) count(most int) int {
	n := int(d.uint(1))
	d.check(n <= most)
	if d.bad {
		return 0
	}
	return n
}

func (d *decoder) addr() netip.Addr {
	n := int(d.uint(1))
	if d.check(n == 4 || n == 16); d.bad {
		return netip.IPv4Unspecified()
	}
	a, _ := netip.AddrFromSlice(d.take(n))
	return a
}

func (d *decoder) prefixes() (out []netip.Prefix) {
	for range d.count(MaxList) {
		p := netip.PrefixFrom(d.addr(), int(d.uint(1)))
		d.check(ValidRange(p))
		out = append(out, p)
	}
	return out
}

func (d *decoder) server() netip.AddrPort {
	a, port, scope := d.addr(), uint16(d.uint(2)), uint32(d.uint(4))
	if scope != 0 {
		d.check(a.Is6() && !a.Is4In6())
		a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return netip.AddrPortFrom(a, port)
}

// ValidRange reports whether a rule can contain the prefix: the bits after the prefix are zero, and
// it is no IPv4-mapped IPv6 address, which no address matches.
func ValidRange(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}
