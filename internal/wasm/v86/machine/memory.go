package machine

import "github.com/tetratelabs/wazero/experimental"

// memory is the emulator's linear memory, in which the guest's is: all that it
// may come to need is reserved, so that growing moves nothing, and what is not
// used takes none of the host's.
type memory struct {
	limit int64
	block []byte
}

// Allocate reserves the memory.
func (m *memory) Allocate(_, most uint64) experimental.LinearMemory {
	m.block = reserve(min(int64(min(most, 4<<30)), m.limit))
	return m
}

// Reallocate grows it; nil is a refusal.
func (m *memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.block)) {
		return nil
	}
	return m.block[:size:len(m.block)]
}

// Free gives it back.
func (m *memory) Free() {
	if m.block != nil {
		release(m.block)
		m.block = nil
	}
}
