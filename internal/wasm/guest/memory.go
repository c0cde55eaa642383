package guest

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one program, and the allocator of its instance.
type memory struct {
	limit  int64            // bytes
	grant  func(int64) bool // requests memory of the worker
	block  []byte           // the reserved address range
	size   int64            // bytes of block in use
	peak   int64
	denied bool // a growth was refused
}

// Allocate reserves the address range for the largest size.
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

// Free releases the memory.
func (m *memory) Free() {
	if m.block != nil {
		release(m.block)
		m.block, m.size = nil, 0
	}
}
