package machine

import "github.com/tetratelabs/wazero/experimental"

// memory is the emulator's linear memory, which contains the guest's. The whole address range is
// reserved at first, so that growing does not move it; pages that were never used take no memory of
// the host.
type memory struct {
	limit int64
	block []byte
}

// Allocate reserves the address range.
func (m *memory) Allocate(_, most uint64) experimental.LinearMemory {
	m.block = reserve(min(int64(min(most, 4<<30)), m.limit))
	return m
}

// Reallocate grows the memory in place. It returns nil above the limit.
func (m *memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.block)) {
		return nil
	}
	return m.block[:size:len(m.block)]
}

// Free releases the address range.
func (m *memory) Free() {
	if m.block != nil {
		release(m.block)
		m.block = nil
	}
}
