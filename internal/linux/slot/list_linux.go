package slot

import (
	"encoding/binary"

	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// list is a list of instructions and the data that they use, while it is written. It is then put
// into a slot's memory.
type list struct {
	at     uint64 // address of the first instruction
	data   uint64 // address of the data
	steps  []*step
	bytes  []byte // the data
	labels []int  // index of a step; -1: not placed
	fail   label  // where a step goes that fails, unless it says otherwise
}

// label is a place in a list; 0 is none.
type label int

// step is an instruction with a name for errors and labels in place of addresses.
type step struct {
	interp.Instr
	name                  string
	onError, next, onZero label
}

// loaded is an argument that is the address of a word, whose lower half is loaded.
type loaded uint64

func (l *list) label() label {
	l.labels = append(l.labels, -1)
	return label(len(l.labels))
}

// place puts a label before the next step.
func (l *list) place(n label) { l.labels[n-1] = len(l.steps) }

// call adds a system call. An argument is a number, an address, a loaded word or a string.
func (l *list) call(name string, number uint64, args ...any) *step {
	s := &step{name: name, onError: l.fail}
	s.Number = number
	for i, a := range args {
		switch a := a.(type) {
		case int:
			s.Args[i] = uint64(a)
		case uint32:
			s.Args[i] = uint64(a)
		case uint64:
			s.Args[i] = a
		case loaded:
			s.Args[i] = uint64(a)
			s.Indirect |= 1 << i
		case string:
			s.Args[i] = l.str(a)
		default:
			panic("slot: an argument of an unknown type")
		}
	}
	l.steps = append(l.steps, s)
	return s
}

// optional makes a step go on after a failure.
func (s *step) optional() *step { s.onError = 0; return s }

// save stores the result.
func (s *step) save(addr uint64) *step { s.Save = addr; return s }

// zero goes to n if the result is 0.
func (s *step) zero(n label) *step { s.onZero = n; return s }

// failTo goes to n after a failure.
func (s *step) failTo(n label) *step { s.onError = n; return s }

// jump goes to n.
func (l *list) jump(n label) {
	s := l.call("", interp.Store, 0).optional()
	s.next = n
}

// set stores a number.
func (l *list) set(addr, value uint64) { l.call("", interp.Store, value).optional().save(addr) }

// equal goes to n if two words of 32 bits are equal.
func (l *list) equal(a, b any, n label) { l.call("", interp.Equal, a, b).optional().zero(n) }

// str adds data that a NUL follows, and returns its address.
func (l *list) str(s string) uint64 {
	addr := l.data + uint64(len(l.bytes))
	l.bytes = append(l.bytes, s...)
	l.bytes = append(l.bytes, make([]byte, 8-len(l.bytes)%8)...)
	return addr
}

// words adds 64-bit words and returns their address.
func (l *list) words(w ...uint64) uint64 {
	addr := l.data + uint64(len(l.bytes))
	for _, v := range w {
		l.bytes = binary.LittleEndian.AppendUint64(l.bytes, v)
	}
	return addr
}

// space adds n bytes, a multiple of 8.
func (l *list) space(n int) uint64 {
	addr := l.data + uint64(len(l.bytes))
	l.bytes = append(l.bytes, make([]byte, n)...)
	return addr
}

// vector adds the addresses of strings, and a 0.
func (l *list) vector(list []string) uint64 {
	w := make([]uint64, 0, len(list)+1)
	for _, s := range list {
		w = append(w, l.str(s))
	}
	return l.words(append(w, 0)...)
}

// put writes the list to memory. It reports false if there is no room: the instructions end at the
// data, and the data at end.
func (l *list) put(memory []byte, end uint64) bool {
	if l.at+uint64(len(l.steps))*interp.InstrSize > l.data || l.data+uint64(len(l.bytes)) > end {
		return false
	}
	address := func(n label) uint64 {
		if n == 0 {
			return 0
		}
		return l.at + uint64(l.labels[n-1])*interp.InstrSize
	}
	for i, s := range l.steps {
		if s.onError != 0 {
			s.OnError = address(s.onError)
		}
		if s.next != 0 {
			s.Next = address(s.next)
		}
		if s.onZero != 0 {
			s.OnZero = address(s.onZero)
		}
		s.Put(memory[l.at-interp.Base+uint64(i)*interp.InstrSize:])
	}
	copy(memory[l.data-interp.Base:], l.bytes)
	return true
}

// stepAt returns the name of the step at an address; "" if there is none.
func (l *list) stepAt(addr uint64) string {
	if addr < l.at || (addr-l.at)/interp.InstrSize >= uint64(len(l.steps)) {
		return ""
	}
	return l.steps[(addr-l.at)/interp.InstrSize].name
}
