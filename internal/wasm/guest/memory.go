package guest

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one program. It is the allocator of its
// instance, which has one memory, and the memory itself.
type memory struct {
	limit  int64            // bytes
	grant  func(int64) bool // asks the worker
	block  []byte           // all that is reserved
	size   int64            // of it in use
	peak   int64
	denied bool // a growth was refused
}

// Allocate reserves what the program may come to have.
func (m *memory) Allocate(_, most uint64) experimental.LinearMemory {
	m.block = reserve(min(int64(min(most, 4<<30)), m.limit))
	m.size = 0
	return m
}

// Reallocate grows the memory to size bytes, or returns nil if that is refused.
func (m *memory) Reallocate(size uint64) []byte {
	n := int64(size)
	switch {
	case n <= m.size:
	case n > int64(len(m.block)), !m.grant(n):
		m.denied = true
		return nil
	default:
		m.size = n
		m.peak = max(m.peak, n)
	}
	return m.block[:n:len(m.block)]
}

// Free gives the memory back.
func (m *memory) Free() {
	if m.block != nil {
		release(m.block)
		m.block, m.size = nil, 0
	}
}
