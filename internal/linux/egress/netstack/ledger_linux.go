package netstack

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// ledger is the state of a link that outlives the process (see wire.LedgerSize). The zero value
// stores nothing.
type ledger struct {
	file  *os.File
	slots int

	mu   sync.Mutex
	free []int // slots that were used before
	next int   // the first slot that was never used
}

// conn is a TCP connection of a sandbox: the program's port, and the destination address.
type conn struct {
	port uint16
	to   netip.AddrPort
}

// newLedger takes ownership of a ledger's file. It returns what an earlier process left in it: the
// number of bytes used, and the connections by slot, which stay in use until erase.
func newLedger(file *os.File, connections int64) (l *ledger, charged uint64, left map[int]conn, err error) {
	b := make([]byte, wire.LedgerSize(connections))
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, 0, nil, err
	}
	l, left = &ledger{file: file, slots: 2 * int(connections)}, map[int]conn{}
	for i := range l.slots {
		c, ok := parseSlot(b[wire.LedgerHead+i*wire.LedgerSlot:][:wire.LedgerSlot])
		if ok {
			left[i] = c
			l.next = i + 1
		}
	}
	for i := range l.next {
		if _, used := left[i]; !used {
			l.free = append(l.free, i)
		}
	}
	return l, binary.LittleEndian.Uint64(b), left, nil
}

// parseSlot parses a slot: address length, padding, both ports, padding, the address.
func parseSlot(b []byte) (conn, bool) {
	n := int(b[0])
	if n != 4 && n != 16 {
		return conn{}, false
	}
	a, _ := netip.AddrFromSlice(b[8 : 8+n])
	return conn{binary.LittleEndian.Uint16(b[2:]), netip.AddrPortFrom(a, binary.LittleEndian.Uint16(b[4:]))}, true
}

// charge stores the number of bytes used by the link.
func (l *ledger) charge(n uint64) error {
	if l.file == nil {
		return nil
	}
	_, err := l.file.WriteAt(binary.LittleEndian.AppendUint64(nil, n), 0)
	return err
}

// open stores a connection. ok is false if no slot is free.
func (l *ledger) open(c conn) (slot int, ok bool) {
	if l.file == nil {
		return 0, true
	}
	l.mu.Lock()
	switch n := len(l.free); {
	case n > 0:
		slot, l.free = l.free[n-1], l.free[:n-1]
	case l.next < l.slots:
		slot = l.next
		l.next++
	default:
		l.mu.Unlock()
		return 0, false
	}
	l.mu.Unlock()
	var b [wire.LedgerSlot]byte
	raw := c.to.Addr().AsSlice()
	b[0] = byte(len(raw))
	binary.LittleEndian.PutUint16(b[2:], c.port)
	binary.LittleEndian.PutUint16(b[4:], c.to.Port())
	copy(b[8:], raw)
	if l.write(slot, b) != nil {
		l.erase(slot)
		return 0, false
	}
	return slot, true
}

// erase frees a slot.
func (l *ledger) erase(slot int) {
	if l.file == nil {
		return
	}
	// on an error the dead connection is only reset once more
	_ = l.write(slot, [wire.LedgerSlot]byte{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, slot)
}

func (l *ledger) write(slot int, b [wire.LedgerSlot]byte) error {
	_, err := l.file.WriteAt(b[:], int64(wire.LedgerHead+slot*wire.LedgerSlot))
	return err
}

func (l *ledger) close() {
	if l.file != nil {
		l.file.Close()
	}
}
