package netstack

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// ledger is what outlives the process of a link (see wire.LedgerSize). The zero
// value is none: nothing outlives it.
type ledger struct {
	file  *os.File
	slots int

	mu   sync.Mutex
	free []int // slots that were used
	next int   // the first slot that never was
}

// conn is a TCP connection of a sandbox: the port of the program's, and the
// address that the program connected to.
type conn struct {
	port uint16
	to   netip.AddrPort
}

// newLedger takes over the file of a ledger and returns what an earlier process
// has left in it: the bytes charged, and the connections with their slots, which
// stay taken until erase.
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

// parseSlot reads a slot: the length of the address, nothing, both ports, nothing,
// the address.
func parseSlot(b []byte) (conn, bool) {
	n := int(b[0])
	if n != 4 && n != 16 {
		return conn{}, false
	}
	a, _ := netip.AddrFromSlice(b[8 : 8+n])
	return conn{binary.LittleEndian.Uint16(b[2:]), netip.AddrPortFrom(a, binary.LittleEndian.Uint16(b[4:]))}, true
}

// charge records the bytes charged to the link.
func (l *ledger) charge(n uint64) error {
	if l.file == nil {
		return nil
	}
	_, err := l.file.WriteAt(binary.LittleEndian.AppendUint64(nil, n), 0)
	return err
}

// open records a connection; not ok if there is no slot for it.
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

// erase gives a slot back.
func (l *ledger) erase(slot int) {
	if l.file == nil {
		return
	}
	_ = l.write(slot, [wire.LedgerSlot]byte{}) // a connection that is no more can be reset again
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
