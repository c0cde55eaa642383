package artefact

import (
	"encoding/binary"
	"errors"
)

// errModule is the error for what is no WebAssembly module.
var errModule = errors.New("not a WebAssembly module of version 1")

// Strip returns a module without its custom sections, which change nothing of
// what it does. Half of an interpreter with debugging information is that.
func Strip(module []byte) ([]byte, error) {
	const header = 8
	if len(module) < header || string(module[:header]) != "\x00asm\x01\x00\x00\x00" {
		return nil, errModule
	}
	out := append(make([]byte, 0, len(module)), module[:header]...)
	for rest := module[header:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return nil, errModule
		}
		end := 1 + n + int(size)
		if rest[0] != 0 {
			out = append(out, rest[:end]...)
		}
		rest = rest[end:]
	}
	return out, nil
}
