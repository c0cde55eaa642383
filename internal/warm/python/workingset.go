package python

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// ProfileProgram returns the program that a copy with ForkRequest.Profile runs. It imports the
// configured modules and prints a line; so it uses little memory that other programs do not use.
func ProfileProgram(imports []string) string {
	var code strings.Builder
	for _, name := range imports {
		code.WriteString("import " + name + "\n")
	}
	return code.String() + "print()\n"
}

// Bounds of the memory that a waiting copy has of its own, in pages of 4 KiB: 3.5 MiB, or 16 MiB if
// the template has configured imports.
const (
	defaultPages  = 896
	importedPages = 4096
)

// WorkingSet returns the message that tells a template which pages to map in each copy. output is
// what ProfileProgram printed with these imports; memory is the sandbox's memory limit in bytes, 0
// or less for none. Pages to be written are bounded by a quarter of the limit. WorkingSet returns
// nil if output names no pages, which is so if the interpreter has finalized itself.
func WorkingSet(imports []string, memory int64, output []byte) []byte {
	pages := uint64(defaultPages)
	if len(imports) > 0 {
		pages = importedPages
	}
	if memory > 0 {
		pages = min(pages, uint64(memory)>>12/4)
	}
	message := []byte("pages\n")
	empty := len(message)
	for line := range strings.Lines(string(output)) {
		var start, length, advice uint64
		if n, err := fmt.Sscanf(line, "%x %x %x\n", &start, &length, &advice); n != 3 || err != nil || len(message) > maxWorkingSet {
			continue
		}
		if advice == populateWrite {
			if length>>12 > pages {
				continue
			}
			pages -= length >> 12
		}
		for _, word := range []uint64{start, length, advice} {
			message = binary.LittleEndian.AppendUint64(message, word)
		}
	}
	if len(message) == empty {
		return nil
	}
	return message
}

// populateWrite is MADV_POPULATE_WRITE (madvise(2), Linux 5.14).
const populateWrite = 23

// maxWorkingSet bounds the message, in bytes: the template receives at most 128 KiB.
const maxWorkingSet = 96 << 10

// MaxProfile bounds what a profile run prints, in bytes.
const MaxProfile = 1 << 20
