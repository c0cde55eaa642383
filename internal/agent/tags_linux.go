package agent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// marks gives every program a number that all it starts inherits and that none
// of them can change, so that what belongs to a program is found wherever it
// went: into another group, session or parent.
//
// The mark is the hard limit of a resource that nothing enforces and that
// /proc/PID/limits shows to all: on Linux the number of file locks
// (RLIMIT_LOCKS), not enforced since 2.4; in gVisor, where that cannot be
// changed, the resident memory (RLIMIT_RSS), which counts in neither. The
// agent changes its own before each program is forked; it counts down, as a
// hard limit only can, so no mark comes twice. The filter that only the
// launcher's thread and its programs have forbids them the same.
//
// The change is made beside the launcher, which is under that filter: while
// one program starts, the mark of the next is set.
type processTags struct {
	resource int
	next     chan uint64   // the mark that a program forked now will have; closed when there are no more
	used     chan struct{} // it has been forked
}

const (
	// topMark is the first mark where the hard limit does not forbid it; the
	// kernel has limits of the processor's size.
	maxTag = 1 << (strconv.IntSize - 2)
	// fewMarks is less than a sandbox's life may need.
	minTags = 1 << 16
)

// markName is what /proc/PID/limits calls the resource whose limit is the mark.
// Others than these are enforced, and no marks.
func tagLimitName(resource uint32) string {
	switch resource {
	case unix.RLIMIT_LOCKS:
		return "\nMax file locks "
	case unix.RLIMIT_RSS:
		return "\nMax resident set "
	}
	return ""
}

// newMarks begins to count where this process's hard limit allows it.
func newProcessTags(resource uint32) (*processTags, error) {
	if tagLimitName(resource) == "" {
		return nil, unix.EINVAL
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, int(resource), nil, &now); err != nil {
		return nil, err
	}
	first := min(now.Max, maxTag)
	if first < minTags {
		return nil, unix.ERANGE
	}
	m := &processTags{resource: int(resource), next: make(chan uint64), used: make(chan struct{}, 1)}
	go m.run(first)
	return m, nil
}

// run sets one mark after the other. It runs on any thread but the launcher's.
func (m *processTags) run(mark uint64) {
	defer close(m.next)
	for ; mark > 0; mark-- {
		if unix.Prlimit(0, m.resource, &unix.Rlimit{Cur: mark, Max: mark}, nil) != nil {
			return
		}
		m.next <- mark
		<-m.used
	}
}

// parseMark finds the mark, the limit that markName names, in the text of
// /proc/PID/limits; 0 is none.
func parseTag(limits []byte, name string) uint64 {
	i := bytes.Index(limits, []byte(name))
	if i < 0 {
		return 0
	}
	_, rest := cutField(limits[i+len(name):]) // the soft limit
	hard, _ := cutField(rest)
	return parseNumber(hard)
}

// cutField returns the first word of a line and what follows it.
func cutField(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " ")
	if i := bytes.IndexAny(b, " \n"); i >= 0 {
		return b[:i], b[i:]
	}
	return b, nil
}

// parseNumber reads a decimal number; 0 for what is none.
func parseNumber(b []byte) (n uint64) {
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<64-10)/10 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
