package wire

import "encoding/binary"

// The second port of a machine carries IP packets, in both directions: PacketHead bytes, which are
// packetMark and the packet's length, and the packet. A side that starts to read in the middle of a
// packet, or gets anything else, skips to the next bytes that are a head and a packet.

// PacketHead is the number of bytes before a packet.
const PacketHead = 4

// MaxPacket is the largest packet, in bytes.
const MaxPacket = 65520

const packetMark = 0x5b7e

// AppendPacketHead appends the head of a packet of n bytes.
func AppendPacketHead(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, packetMark), uint16(n))
}

// PacketReader finds the packets of a byte stream. The zero value is ready.
type PacketReader struct {
	buf      []byte // nil before the first Space
	from, to int    // of the bytes that Next has not returned
}

// Space returns where the next bytes of the stream are read to; it is not empty.
func (r *PacketReader) Space() []byte {
	if r.buf == nil {
		r.buf = make([]byte, PacketHead+MaxPacket)
	}
	if r.from > 0 {
		r.from, r.to = 0, copy(r.buf, r.buf[r.from:r.to])
	}
	return r.buf[r.to:]
}

// Read says that n bytes were read into Space.
func (r *PacketReader) Read(n int) { r.to += n }

// Next returns the next packet, which is valid until Space is called. It returns nil if more bytes
// are needed.
func (r *PacketReader) Next() []byte {
	for ; r.to-r.from > PacketHead; r.from++ {
		b := r.buf[r.from:r.to]
		n, ok := packetLength(b)
		if !ok {
			continue // skip a byte
		}
		if len(b) < PacketHead+n {
			return nil
		}
		r.from += PacketHead + n
		return b[PacketHead : PacketHead+n]
	}
	return nil
}

// packetLength returns the length of the packet behind a head. ok is false if b does not begin with
// a head and an IP packet of that length. If b is too short to tell, it is true.
func packetLength(b []byte) (n int, ok bool) {
	if binary.BigEndian.Uint16(b) != packetMark {
		return 0, false
	}
	n, ip := int(binary.BigEndian.Uint16(b[2:])), b[PacketHead:]
	if n > MaxPacket {
		return 0, false
	}
	switch ip[0] >> 4 {
	case 4:
		return n, n >= 20 && (len(ip) < 4 || int(binary.BigEndian.Uint16(ip[2:])) == n)
	case 6:
		return n, n >= 40 && (len(ip) < 6 || int(binary.BigEndian.Uint16(ip[4:]))+40 == n)
	}
	return 0, false
}
