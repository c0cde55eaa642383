package slot

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// A slot keeps its network namespace for the next sandbox if the last one's program cannot have
// changed it. Programs have no capability over it. An internet socket can change it nevertheless,
// for example its counters and its flow labels; package netuse sees such sockets. Of the others
// that programs can make, UNIX sockets change nothing that outlives them, and netlink sockets can
// only read, but the kernel counts queries for routes, and keeps a copy of the route. The states
// show that.

// netState is a file that shows a part of a network namespace's state.
type netState struct {
	path string
	size int    // of what is read
	fd   uint64 // word, or an error
	got  uint64 // word: the number of bytes, or an error
	data uint64
}

// netStates are the files. Their first bytes tell about this namespace, others about the host.
func netStates() []netState {
	return []netState{
		{path: "/proc/self/net/sockstat", size: len("sockets: used 0\n")},
		{path: "/proc/self/net/rt6_stats", size: 64},
		{path: "/proc/self/net/ipv6_route", size: 1024},
		{path: "/proc/self/net/fib_triestat", size: 4096},
	}
}

// unread is in place of a number of bytes, and larger than each.
const unread = 1 << 32

// compareStates reads the files before the program, and returns the step that reads them after it.
// One descriptor is open at a time, because the limit of a program's descriptors holds already.
func (w *writer) compareStates() (after func()) {
	for _, s := range netStates() {
		for _, to := range []*[]netState{&w.before, &w.after} {
			s.fd, s.got, s.data = w.words(0), w.words(0), w.space((s.size+7)&^7)
			w.set(s.got, unread)
			*to = append(*to, s)
		}
	}
	w.readStates(w.before)
	return func() { w.readStates(w.after) }
}

// readStates reads the files.
func (w *writer) readStates(states []netState) {
	for _, s := range states {
		w.call("", unix.SYS_OPENAT, cwd, s.path, unix.O_RDONLY|unix.O_CLOEXEC, 0).save(s.fd).optional()
		w.call("", unix.SYS_READ, loaded(s.fd), s.data, s.size).save(s.got).optional()
		w.call("", unix.SYS_CLOSE, loaded(s.fd)).optional()
	}
}

// Network returns the cookie of the sandbox's network namespace, after Built. 0: it is unknown.
func (s *Slot) Network() uint64 { return s.word(s.program.network) }

// SameNetwork reports, after the end of a sandbox, whether its network namespace shows the same as
// before its program, apart from what internet sockets leave. It reports false if a file could not
// be read, unless the kernel does not have it.
func (s *Slot) SameNetwork() bool {
	for i, before := range s.program.before {
		after := s.program.after[i]
		if s.missing(before) && s.missing(after) {
			continue
		}
		n := s.word(before.got)
		if n == 0 || n > uint64(before.size) || n != s.word(after.got) || !bytes.Equal(s.bytes(before)[:n], s.bytes(after)[:n]) {
			return false
		}
	}
	return true
}

// missing reports whether the kernel does not have the file.
func (s *Slot) missing(n netState) bool { return int64(s.word(n.fd)) == -int64(unix.ENOENT) }

// bytes returns the memory of a state.
func (s *Slot) bytes(n netState) []byte {
	return s.memory[n.data-interp.Base:][:n.size]
}
