package agent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// processTags gives every program a number, its tag. All processes that it starts inherit the tag,
// and none can change it. So the processes of a program can be found after they have changed their
// process group, session or parent.
//
// The tag is the hard limit of a resource that the kernel does not enforce and that
// /proc/PID/limits shows. On Linux that is RLIMIT_LOCKS, not enforced since 2.4.25 (getrlimit(2));
// in gVisor, where RLIMIT_LOCKS cannot be changed, it is RLIMIT_RSS. The agent sets its own limit
// before each fork. A hard limit can only be lowered without CAP_SYS_RESOURCE, so tags count down
// and no tag is used twice. The launcher's seccomp filter forbids programs to change that limit.
//
// A goroutine on another thread sets the next tag while the launcher starts a program, because that
// filter also applies to the launcher.
type processTags struct {
	resource int
	next     chan uint64   // the tag of the next forked program; closed when there are none left
	used     chan struct{} // the program with the last tag has been forked
}

const (
	// maxTag is the first tag if the hard limit does not forbid it. Limits have the size of the
	// CPU's word.
	maxTag = 1 << (strconv.IntSize - 2)
	// minTags is the fewest tags that a sandbox must start with.
	minTags = 1 << 16
)

// tagLimitName returns the line of a resource in /proc/PID/limits, "" for a resource that the
// kernel enforces and that therefore cannot be the tag.
func tagLimitName(resource uint32) string {
	switch resource {
	case unix.RLIMIT_LOCKS:
		return "\nMax file locks "
	case unix.RLIMIT_RSS:
		return "\nMax resident set "
	}
	return ""
}

// FirstTag returns the first tag of a sandbox whose hard limit of the resource is most.
func FirstTag(most uint64) uint64 { return min(most, maxTag) }

// newProcessTags starts counting at this process's hard limit, or at maxTag if that is lower.
func newProcessTags(resource uint32) (*processTags, error) {
	if tagLimitName(resource) == "" {
		return nil, unix.EINVAL
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, int(resource), nil, &now); err != nil {
		return nil, err
	}
	first := FirstTag(now.Max)
	if first < minTags {
		return nil, unix.ERANGE
	}
	m := &processTags{resource: int(resource), next: make(chan uint64), used: make(chan struct{}, 1)}
	go m.run(first)
	return m, nil
}

// run sets one tag after the other. It must not run on the launcher's thread.
func (m *processTags) run(tag uint64) {
	defer close(m.next)
	for ; tag > 0; tag-- {
		if unix.Prlimit(0, m.resource, &unix.Rlimit{Cur: tag, Max: tag}, nil) != nil {
			return
		}
		m.next <- tag
		<-m.used
	}
}

// parseTag returns the tag in the text of /proc/PID/limits, 0 if there is none. name is of
// tagLimitName.
func parseTag(limits []byte, name string) uint64 {
	i := bytes.Index(limits, []byte(name))
	if i < 0 {
		return 0
	}
	_, rest := cutField(limits[i+len(name):]) // skip the soft limit
	hard, _ := cutField(rest)
	return parseNumber(hard)
}

// cutField returns the first word of a line and the rest.
func cutField(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " ")
	if i := bytes.IndexAny(b, " \n"); i >= 0 {
		return b[:i], b[i:]
	}
	return b, nil
}

// parseNumber reads a decimal number, 0 if malformed.
func parseNumber(b []byte) (n uint64) {
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<64-10)/10 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
