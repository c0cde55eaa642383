package artefact

import (
	"encoding/binary"
	"errors"
)

// errModule is the error for a file that is no WebAssembly module.
var errModule = errors.New("not a WebAssembly module of version 1")

// magic is the start of every module.
const magic = "\x00asm\x01\x00\x00\x00"

// The sections that are interpreted.
const (
	sectionCustom = 0
	sectionMemory = 5
	sectionGlobal = 6
)

// rewrite returns a module with changed sections. change returns the new content of a section, or
// nil to omit it.
func rewrite(module []byte, change func(kind byte, content []byte) ([]byte, error)) ([]byte, error) {
	if len(module) < len(magic) || string(module[:len(magic)]) != magic {
		return nil, errModule
	}
	out := append(make([]byte, 0, len(module)), magic...)
	for rest := module[len(magic):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return nil, errModule
		}
		kind, content := rest[0], rest[1+n:1+n+int(size)]
		rest = rest[1+n+int(size):]
		content, err := change(kind, content)
		if err != nil {
			return nil, err
		}
		if content != nil {
			out = binary.AppendUvarint(append(out, kind), uint64(len(content)))
			out = append(out, content...)
		}
	}
	return out, nil
}

// Strip returns a module without its custom sections, which do not affect its execution. They are
// half of an interpreter with debugging information.
func Strip(module []byte) ([]byte, error) {
	return rewrite(module, func(kind byte, content []byte) ([]byte, error) {
		if kind == sectionCustom {
			return nil, nil
		}
		return content, nil
	})
}

// pageSize is the size of a page of linear memory, in bytes.
const pageSize = 64 << 10

// EnlargeStack returns a module whose stack is moved to that many pages of new memory, after its
// initial memory. Its first memory must have no maximum, and its first global must be the stack
// pointer, as C compilers arrange it.
//
// Python's interpreter is built with a stack of half a megabyte, which its own recursion limit does
// not respect: it would overflow into its data. EnlargeStack is for modules that were started once
// at build time and snapshotted: their allocator knows which memory it owns, so the new pages are
// safe.
func EnlargeStack(module []byte, pages uint64) ([]byte, error) {
	var memory uint64 // in pages, with the stack
	return rewrite(module, func(kind byte, content []byte) ([]byte, error) {
		switch kind {
		case sectionMemory: // it precedes the globals
			had, err := minimum(content)
			if err != nil {
				return nil, err
			}
			memory = had + pages
			return binary.AppendUvarint([]byte{1, 0}, memory), nil
		case sectionGlobal:
			return moveStack(content, memory*pageSize)
		}
		return content, nil
	})
}

// minimum decodes a memory section with one memory without maximum.
func minimum(content []byte) (uint64, error) {
	if len(content) < 3 || content[0] != 1 || content[1] != 0 {
		return 0, errors.New("the module's memory is not one without a maximum")
	}
	pages, n := binary.Uvarint(content[2:])
	if n <= 0 || 2+n != len(content) {
		return 0, errModule
	}
	return pages, nil
}

// moveStack sets the first global of a section, which must be a mutable i32 constant.
func moveStack(content []byte, to uint64) ([]byte, error) {
	count, n := binary.Uvarint(content)
	const i32, mutable, constant, end = 0x7f, 1, 0x41, 0x0b
	if n <= 0 || count == 0 || len(content) < n+4 || content[n] != i32 || content[n+1] != mutable || content[n+2] != constant {
		return nil, errors.New("the module's first global is not a stack pointer")
	}
	at := n + 3
	for at < len(content) && content[at]&0x80 != 0 {
		at++
	}
	if at+1 >= len(content) || content[at+1] != end {
		return nil, errModule
	}
	out := append([]byte(nil), content[:n+3]...)
	out = appendSigned(out, int64(to))
	return append(out, content[at+1:]...), nil
}

// appendSigned appends a number as signed LEB128.
func appendSigned(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
