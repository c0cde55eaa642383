package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// packet returns an IP packet of n bytes with a fill byte as content.
func packet(version, n int, fill byte) []byte {
	p := bytes.Repeat([]byte{fill}, n)
	p[0] = byte(version << 4)
	if version == 4 {
		binary.BigEndian.PutUint16(p[2:], uint16(n))
	} else {
		binary.BigEndian.PutUint16(p[4:], uint16(n-40))
	}
	return p
}

// feed passes a stream to a reader in pieces and returns the packets.
func feed(r *PacketReader, stream []byte, piece func() int) (got [][]byte) {
	for len(stream) > 0 {
		n := copy(r.Space(), stream[:min(piece(), len(stream))])
		r.Read(n)
		stream = stream[n:]
		for p := r.Next(); p != nil; p = r.Next() {
			got = append(got, bytes.Clone(p))
		}
	}
	return got
}

// Packets arrive whole and in order, however the stream is divided, also after foreign bytes.
func TestPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(0, 20).Draw(t, "packets") {
			// No part of the garbage or of a packet's content is a head.
			stream = append(stream, bytes.Repeat([]byte{0xaa}, rapid.IntRange(0, 50).Draw(t, "garbage"))...)
			version := rapid.SampledFrom([]int{4, 6}).Draw(t, "version")
			p := packet(version, rapid.OneOf(rapid.IntRange(40, 100), rapid.IntRange(40, MaxPacket)).Draw(t, "length"), 0xbb)
			stream = append(AppendPacketHead(stream, len(p)), p...)
			want = append(want, p)
		}
		var r PacketReader
		got := feed(&r, stream, func() int { return rapid.IntRange(1, 70000).Draw(t, "piece") })
		if len(got) != len(want) {
			t.Fatalf("%d packets, want %d", len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("packet %d differs", i)
			}
		}
	})
}

// A reader that starts in the middle of a packet, or misses its end, finds the next one.
func TestPacketsAfterLoss(t *testing.T) {
	first, second := packet(4, 1000, 1), packet(6, 500, 2)
	stream := append(AppendPacketHead(nil, len(first)), first...)
	begin := append(AppendPacketHead(nil, len(second)), second...)
	for cut := 1; cut < len(stream); cut++ {
		var r PacketReader
		got := feed(&r, append(bytes.Clone(stream[cut:]), begin...), func() int { return 100 })
		if len(got) != 1 || !bytes.Equal(got[0], second) {
			t.Fatalf("after %d lost bytes: %d packets", cut, len(got))
		}
	}
}

// FuzzPackets checks that every packet is an IP packet of its length, and that the reader never
// stops for lack of space.
func FuzzPackets(f *testing.F) {
	f.Add(append(AppendPacketHead(nil, 20), packet(4, 20, 0)...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var r PacketReader
		for len(stream) > 0 {
			space := r.Space()
			if len(space) == 0 {
				t.Fatal("there is no space")
			}
			n := copy(space, stream)
			r.Read(n)
			stream = stream[n:]
			for p := r.Next(); p != nil; p = r.Next() {
				if len(p) < 20 || len(p) > MaxPacket || p[0]>>4 != 4 && p[0]>>4 != 6 {
					t.Fatalf("a packet of %d bytes, version %d", len(p), p[0]>>4)
				}
			}
		}
	})
}
