// Package modes parses and formats permission bits as chmod and ls do.
package modes

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Parse applies a mode, octal or symbolic, to the mode old. dir affects X and s. umask applies to
// clauses without u, g, o or a.
func Parse(text string, old fs.FileMode, dir bool, umask fs.FileMode) (fs.FileMode, error) {
	if text != "" && strings.Trim(text, "01234567") == "" {
		n, err := strconv.ParseUint(text, 8, 16)
		if err != nil || n > 0o7777 {
			return 0, fmt.Errorf("invalid mode: %q", text)
		}
		return fromUnix(uint32(n)), nil
	}
	bits := Unix(old)
	for clause := range strings.SplitSeq(text, ",") {
		next, ok := apply(clause, bits, dir, Unix(umask))
		if !ok {
			return 0, fmt.Errorf("invalid mode: %q", text)
		}
		bits = next
	}
	return fromUnix(bits), nil
}

// apply applies one clause such as go-w or u=rwX.
func apply(clause string, bits uint32, dir bool, umask uint32) (uint32, bool) {
	i := 0
	var who uint32
	for ; i < len(clause) && strings.IndexByte("ugoa", clause[i]) >= 0; i++ {
		who |= map[byte]uint32{'u': 0o4700, 'g': 0o2070, 'o': 0o1007, 'a': 0o7777}[clause[i]]
	}
	mask := uint32(0o7777)
	if who == 0 {
		who, mask = 0o7777, ^umask
	}
	if i == len(clause) {
		return 0, false
	}
	for i < len(clause) {
		op := clause[i]
		if strings.IndexByte("+-=", op) < 0 {
			return 0, false
		}
		i++
		var perm uint32
		for ; i < len(clause) && strings.IndexByte("+-=", clause[i]) < 0; i++ {
			p, ok := permissions(clause[i], bits, dir)
			if !ok {
				return 0, false
			}
			perm |= p
		}
		perm &= who & mask
		switch op {
		case '+':
			bits |= perm
		case '-':
			bits &^= perm
		case '=':
			bits = bits&^(who&0o1777) | perm
		}
	}
	return bits, true
}

func permissions(c byte, bits uint32, dir bool) (uint32, bool) {
	switch c {
	case 'r':
		return 0o444, true
	case 'w':
		return 0o222, true
	case 'x':
		return 0o111, true
	case 'X':
		if dir || bits&0o111 != 0 {
			return 0o111, true
		}
		return 0, true
	case 's':
		return 0o6000, true
	case 't':
		return 0o1000, true
	case 'u':
		return bits >> 6 & 7 * 0o111, true
	case 'g':
		return bits >> 3 & 7 * 0o111, true
	case 'o':
		return bits & 7 * 0o111, true
	}
	return 0, false
}

// Unix returns the mode bits as in chmod(2).
func Unix(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, b := range special {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return bits
}

func fromUnix(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for _, b := range special {
		if bits&b.bit != 0 {
			m |= b.mode
		}
	}
	return m
}

var special = []struct {
	mode fs.FileMode
	bit  uint32
}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}}

// String formats a mode as ls -l does.
func String(m fs.FileMode) string {
	kind := byte('-')
	switch {
	case m.IsDir():
		kind = 'd'
	case m&fs.ModeSymlink != 0:
		kind = 'l'
	case m&fs.ModeCharDevice != 0:
		kind = 'c'
	}
	text := []byte{kind}
	for i := 8; i >= 0; i-- {
		c := byte('-')
		if m&(1<<i) != 0 {
			c = "xwr"[i%3]
		}
		text = append(text, c)
	}
	mark := func(on fs.FileMode, at int, lower, upper byte) {
		if m&on == 0 {
			return
		}
		if text[at] == 'x' {
			text[at] = lower
		} else {
			text[at] = upper
		}
	}
	mark(fs.ModeSetuid, 3, 's', 'S')
	mark(fs.ModeSetgid, 6, 's', 'S')
	mark(fs.ModeSticky, 9, 't', 'T')
	return string(text)
}
