// Package interp executes system calls that are listed in memory, in a process without a Go
// runtime.
//
// Start clones the calling process. The child executes nothing but one routine of this package: 60
// instructions of assembler that use no stack and call nothing. The routine reads an Instr, makes
// its system call, stores the result, and goes on to the next Instr, as the result demands. All
// that such a process does, its children included, is therefore a list of Instr, which another
// process has written to memory that both share. Once the child has unmapped everything else, its
// address space is that memory and two pages of code.
//
// A child that the list itself clones goes on in the same list; OnZero of the clone tells parent
// and child apart. The child of a clone with CLONE_VM and CLONE_VFORK may share its parent's memory
// until its execve(2), because there is no stack that it could overwrite.
//
// The memory has a fixed address, so that its writer needs no relocation.
package interp

import "encoding/binary"

// The layout of the memory. Offsets are relative to Base.
const (
	// Base is the address of the memory in every process that executes it. No processor's and no
	// kernel's smallest address space lacks it, and the Go runtime maps its heap elsewhere.
	Base = 0x2000000000
	// Size is the size of the memory in bytes.
	Size = 1 << 20
	// FailedAt has the address of the last Instr that failed and has OnError, and FailedResult the
	// result, a negative error number.
	FailedAt     = 0x00
	FailedResult = 0x08
	// ParentAt has the process id of the parent, 32 bits.
	ParentAt = 0x10
	// prologueAt is where the instructions of Start are. They are followed by those at Entry.
	prologueAt = 0x100
	// Entry is the offset of the first Instr of the caller.
	Entry = 0x8000
)

// Socket is the descriptor of the process's connection. It has no other.
const Socket = 200

// The operations that are not system calls.
const (
	// Equal compares 32 bits of Args[0] and Args[1], and goes to OnZero if they are equal.
	Equal = 1<<64 - 1
	// Store stores Args[0] in Save.
	Store = 1<<64 - 2
)

// Instr is one system call and what follows it. All addresses are absolute; 0 means none.
type Instr struct {
	Number uint64 // of the system call, or Equal or Store
	Args   [6]uint64
	// Indirect has a bit for each argument that is the address of 32 bits, which are loaded and
	// extended by zeros.
	Indirect uint64
	Save     uint64 // where to store the result, 64 bits
	OnError  uint64 // the next Instr if the result is an error; 0: as after success
	Next     uint64 // the next Instr otherwise; 0: the one that follows in memory
	OnZero   uint64 // the next Instr if the result is 0; nothing is stored then
}

// InstrSize is the size of an Instr in memory, in bytes.
const InstrSize = 12 * 8

// Put writes the instruction to the first InstrSize bytes of b.
func (i *Instr) Put(b []byte) {
	words := [...]uint64{i.Number, i.Args[0], i.Args[1], i.Args[2], i.Args[3], i.Args[4], i.Args[5],
		i.Indirect, i.Save, i.OnError, i.Next, i.OnZero}
	for k, w := range words {
		binary.LittleEndian.PutUint64(b[8*k:], w)
	}
}

// Process is what Start makes.
type Process struct {
	Flags  uint64 // of clone3(2), besides CLONE_PIDFD and CLONE_CLEAR_SIGHAND
	Cgroup int    // descriptor of a version 2 cgroup in which the process starts; -1: the caller's
	Memory int    // descriptor of the memory, Size bytes
	Socket int    // descriptor that becomes Socket
}
