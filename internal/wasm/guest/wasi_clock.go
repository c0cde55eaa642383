package guest

import (
	"encoding/binary"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// The clocks of WASI.
const (
	clockReal      = 0
	clockMonotonic = 1
	clockProcess   = 2
	clockThread    = 3
)

// now returns the time of a clock, in nanoseconds.
func (m *machine) now(clock uint32) (int64, call.Errno) {
	switch clock {
	case clockReal:
		return time.Now().UnixNano(), 0
	case clockMonotonic:
		return int64(m.since()), 0
	case clockProcess, clockThread:
		return int64(cpuTime() - m.cpu), 0
	}
	return 0, call.EINVAL
}

func clockResGet(c *wasiCall) call.Errno {
	if c.u32(0) > clockThread {
		return call.EINVAL
	}
	return c.put64(c.u32(1), 1)
}

func clockTimeGet(c *wasiCall) call.Errno {
	t, errno := c.now(c.u32(0))
	if errno != 0 {
		return errno
	}
	return c.put64(c.u32(2), uint64(t))
}

// The sizes of poll_oneoff's records.
const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 1024
)

// subscription is an event of poll_oneoff: a time, or a descriptor. Every descriptor is ready at
// once; its read blocks instead.
type subscription struct {
	userdata uint64
	kind     byte // 0 clock, 1 to read, 2 to write
	wait     time.Duration
}

// pollOneoff waits for the first of its subscriptions. CPython uses it to sleep until a time of the
// monotonic clock.
func pollOneoff(c *wasiCall) call.Errno {
	n := c.u32(2)
	if n == 0 || n > maxSubscriptions {
		return call.EINVAL
	}
	in, ok := c.bytes(c.u32(0), n*subscriptionSize)
	if !ok {
		return call.EFAULT
	}
	subs, errno := c.subscriptions(in)
	if errno != 0 {
		return errno
	}
	first := subs[0].wait
	for _, s := range subs {
		first = min(first, s.wait)
	}
	// If the program must end before, the process is killed.
	time.Sleep(first)
	out, ok := c.bytes(c.u32(1), n*eventSize)
	if !ok {
		return call.EFAULT
	}
	due := uint32(0)
	for _, s := range subs {
		if s.wait <= first {
			putEvent(out[due*eventSize:], &s)
			due++
		}
	}
	return c.put32(c.u32(3), due)
}

// subscriptions decodes the records.
func (c *wasiCall) subscriptions(in []byte) ([]subscription, call.Errno) {
	var subs []subscription
	le := binary.LittleEndian
	for ; len(in) > 0; in = in[subscriptionSize:] {
		s := subscription{userdata: le.Uint64(in), kind: in[8]}
		if s.kind == 0 {
			wait := time.Duration(min(le.Uint64(in[24:]), 1<<62))
			if le.Uint16(in[40:])&1 != 0 { // an absolute time
				now, errno := c.now(le.Uint32(in[16:]))
				if errno != 0 {
					return nil, errno
				}
				wait -= time.Duration(now)
			}
			s.wait = max(wait, 0)
		}
		subs = append(subs, s)
	}
	return subs, 0
}

func putEvent(b []byte, s *subscription) {
	clear(b[:eventSize])
	binary.LittleEndian.PutUint64(b, s.userdata)
	b[10] = s.kind
	if s.kind != 0 {
		binary.LittleEndian.PutUint64(b[16:], 1) // at least one byte
	}
}
