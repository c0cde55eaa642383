package worker

import (
	"io"
	"sync"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Channels of a program, as in package agent.
const (
	channelIn  = 0
	channelOut = 1
	channelErr = 2
)

// maxData bounds the output in one frame, in bytes.
const maxData = 32 << 10

// streams are the standard streams of a program that the host started. Each side sends within the
// credit that the other granted.
type streams struct {
	link *link
	id   uint32

	mu     sync.Mutex
	change *sync.Cond
	queue  []byte  // input that the program has not read
	inEnd  bool    // end of input
	credit [3]int  // bytes that may be sent
	closed [3]bool // the host reads no more
	over   bool    // the program has ended or is being ended
}

func newStreams(l *link, id uint32) *streams {
	s := &streams{link: l, id: id, credit: [3]int{0, wire.Window, wire.Window}}
	s.change = sync.NewCond(&s.mu)
	return s
}

// input is the program's standard input.
type input struct{ s *streams }

// Read waits for input, the end of input, or the end of the program.
func (r input) Read(p []byte) (int, error) {
	s := r.s
	s.mu.Lock()
	for len(s.queue) == 0 && !s.inEnd && !s.over {
		s.change.Wait()
	}
	if len(p) == 0 || (len(s.queue) > 0 && s.over) {
		s.mu.Unlock()
		return 0, nil
	}
	n := copy(p, s.queue)
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	s.mu.Unlock()
	if n == 0 {
		return 0, io.EOF
	}
	return n, s.link.write(wire.Frame{Type: wire.TypeCredit, ID: s.id, Payload: wire.AppendCredit(nil, channelIn, uint32(n))})
}

// output is standard output or standard error of the program.
type output struct {
	s  *streams
	ch int
}

// Write sends p and waits for credit. io.ErrClosedPipe: the host reads no more, or the program is
// being ended.
func (o output) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		k := o.s.takeCredit(o.ch, min(len(p), maxData))
		if k == 0 {
			return n, io.ErrClosedPipe
		}
		payload := append(wire.AppendChannel(make([]byte, 0, k+1), uint8(o.ch)), p[:k]...)
		if err := o.s.link.write(wire.Frame{Type: wire.TypeData, ID: o.s.id, Payload: payload}); err != nil {
			return n, err
		}
		n += k
		p = p[k:]
	}
	return n, nil
}

// takeCredit waits for credit and takes at most want bytes of it. It returns 0 if no more may be
// sent.
func (s *streams) takeCredit(ch, want int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit[ch] == 0 && !s.closed[ch] && !s.over {
		s.change.Wait()
	}
	if s.closed[ch] || s.over {
		return 0
	}
	n := min(want, s.credit[ch])
	s.credit[ch] -= n
	return n
}

// end wakes all blocked reads and writes, because the program has ended or is being ended.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.change.Broadcast()
}

// finish closes both outputs.
func (s *streams) finish() {
	s.end()
	for ch := uint8(channelOut); ch <= channelErr; ch++ {
		_ = s.link.write(wire.Frame{Type: wire.TypeClose, ID: s.id, Payload: wire.AppendChannel(nil, ch)})
	}
}

// onStream processes a frame of a channel. A frame for a program that has ended is not an error:
// the host may have sent it before it received Exited.
func (w *worker) onStream(f wire.Frame) error {
	ch, rest, err := wire.DecodeChannel(f.Payload)
	if err != nil || ch > channelErr {
		return errProtocol
	}
	w.mu.Lock()
	s := w.channels[f.ID]
	w.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change.Broadcast()
	switch f.Type {
	case wire.TypeData:
		if ch != channelIn || len(s.queue)+len(rest) > wire.Window {
			return errProtocol
		}
		if !s.inEnd {
			s.queue = append(s.queue, rest...)
		}
	case wire.TypeCredit:
		n, err := wire.DecodeCredit(rest)
		if err != nil || ch == channelIn || s.credit[ch]+int(n) > wire.Window {
			return errProtocol
		}
		s.credit[ch] += int(n)
	case wire.TypeClose:
		if ch == channelIn {
			s.inEnd = true
		} else {
			s.closed[ch] = true
		}
	}
	return nil
}
