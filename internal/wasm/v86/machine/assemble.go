package machine

import (
	"encoding/binary"
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// This file writes small WebAssembly modules that connect the core to generated modules.

// magic is the start of every module.
const magic = "\x00asm\x01\x00\x00\x00"

// The sections of a module, in their order.
const (
	sectionType    = 1
	sectionImport  = 2
	sectionTable   = 4
	sectionExport  = 7
	sectionElement = 9
)

// Kinds of imports and exports.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
)

const (
	typeFunction = 0x60
	typeFuncref  = 0x70
	opConst      = 0x41 // i32.const
	opEnd        = 0x0b
)

var errModule = errors.New("not a WebAssembly module of version 1")

// function is a function that a module imports and exports again.
type function struct {
	name            string
	params, results []api.ValueType
}

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// appendInt appends a number as signed LEB128.
func appendInt(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

func appendName(b []byte, name string) []byte {
	return append(appendUint(b, uint64(len(name))), name...)
}

func appendSection(b []byte, kind byte, content []byte) []byte {
	b = appendUint(append(b, kind), uint64(len(content)))
	return append(b, content...)
}

// relay is a module that imports functions of the module from and exports them under their own
// names. WebAssembly can import only from modules, and a wazero host module can export functions
// only, no table.
type relay struct {
	from      string
	functions []function
	table     uint64 // size of a table of functions that it defines; 0: none
	tableName string
	memory    string // name of a memory of from that it exports again; "": none
	memoryAs  string
}

// bytes returns the encoded module.
func (r *relay) bytes() []byte {
	var types, imports, exports []byte
	n := uint64(len(r.functions))
	for i, f := range r.functions {
		types = append(types, typeFunction)
		types = append(appendUint(types, uint64(len(f.params))), f.params...)
		types = append(appendUint(types, uint64(len(f.results))), f.results...)
		imports = appendName(appendName(imports, r.from), f.name)
		imports = appendUint(append(imports, kindFunction), uint64(i))
		exports = appendUint(append(appendName(exports, f.name), kindFunction), uint64(i))
	}
	imported, exported := n, n
	if r.memory != "" {
		imports = append(appendName(appendName(imports, r.from), r.memory), kindMemory, 0, 0)
		exports = append(appendName(exports, r.memoryAs), kindMemory, 0)
		imported, exported = imported+1, exported+1
	}
	var table []byte
	if r.table > 0 {
		table = appendUint([]byte{1, typeFuncref, 0}, r.table)
		exports = append(appendName(exports, r.tableName), kindTable, 0)
		exported++
	}
	out := []byte(magic)
	out = appendSection(out, sectionType, append(appendUint(nil, n), types...))
	out = appendSection(out, sectionImport, append(appendUint(nil, imported), imports...))
	if table != nil {
		out = appendSection(out, sectionTable, table)
	}
	return appendSection(out, sectionExport, append(appendUint(nil, exported), exports...))
}

// withElement returns a generated module with an added element segment: on instantiation, its only
// exported function is stored in a slot of the table that module exports under the name table. A
// generated module must import no table and have no element segment.
func withElement(generated []byte, module, table string, slot uint32) ([]byte, error) {
	if len(generated) < len(magic) || string(generated[:len(magic)]) != magic {
		return nil, errModule
	}
	out := make([]byte, 0, len(generated)+64)
	out = append(out, magic...)
	placed := false
	for rest := generated[len(magic):]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return nil, errModule
		}
		kind, content := rest[0], rest[1+n:1+n+int(size)]
		rest = rest[1+n+int(size):]
		switch kind {
		case sectionTable, sectionElement:
			return nil, errors.New("a generated module has a table of its own")
		case sectionImport:
			count, n := binary.Uvarint(content)
			if n <= 0 {
				return nil, errModule
			}
			more := append(appendUint(nil, count+1), content[n:]...)
			more = append(appendName(appendName(more, module), table), kindTable, typeFuncref, 0, 0)
			out = appendSection(out, kind, more)
			continue
		case sectionExport:
			index, err := onlyExport(content)
			if err != nil {
				return nil, err
			}
			out = appendSection(out, kind, content)
			element := append(appendInt([]byte{1, 0, opConst}, int64(slot)), opEnd, 1)
			out = appendSection(out, sectionElement, appendUint(element, index))
			placed = true
			continue
		}
		out = appendSection(out, kind, content)
	}
	if !placed {
		return nil, errors.New("a generated module exports nothing")
	}
	return out, nil
}

// onlyExport returns the index of the function that is a module's only export.
func onlyExport(content []byte) (uint64, error) {
	count, n := binary.Uvarint(content)
	if n <= 0 || count != 1 {
		return 0, errors.New("a generated module does not export one function")
	}
	length, m := binary.Uvarint(content[n:])
	at := n + m + int(min(length, uint64(len(content))))
	if m <= 0 || at+1 >= len(content) || content[at] != kindFunction {
		return 0, errModule
	}
	index, k := binary.Uvarint(content[at+1:])
	if k <= 0 {
		return 0, errModule
	}
	return index, nil
}
