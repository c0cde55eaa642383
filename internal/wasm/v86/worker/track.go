package worker

import (
	"errors"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// errGuest is the error for a violation of the protocol by the guest or the host.
var errGuest = errors.New("the guest's agent broke the protocol")

// Channels of a program, as in package agent.
const (
	channelOut = 1
	channelErr = 2
)

const (
	sigKill = 9
	eintr   = 4 // as Linux numbers it
)

// track follows the conversation between host and agent, in order to know whether work is in
// progress. The machine runs only then.
type track struct {
	requests map[uint32]request  // requests without an answer yet
	programs map[uint32]*program // programs that run or whose output is open, open connections and watches
	killing  int                 // killed programs that have not ended
	epoch    uint64              // of process tags; incremented at each reset
}

// request is a request without an answer.
type request struct {
	kind     wire.Type
	terminal bool // a Start of a program with a terminal, which has one output
}

// program is a started program, a dialled connection or a watch.
type program struct {
	running bool
	open    [3]bool // outputs without end of file yet
	killed  bool
}

func newTrack() *track {
	return &track{requests: map[uint32]request{}, programs: map[uint32]*program{}, epoch: 1}
}

// busy reports whether a request, program or connection is in progress.
func (t *track) busy() bool { return len(t.requests) > 0 || len(t.programs) > 0 }

// answerDue reports whether the agent must respond in time: to a request, or by ending a killed
// program.
func (t *track) answerDue() bool { return len(t.requests) > 0 || t.killing > 0 }

// epochShift is the position of the epoch in the process tags that the host sees. The tags of a
// guest's kernel are shorter.
const epochShift = 32

// sent processes a frame of the host and returns the frame for the guest. If reply is not nil, it
// is the answer, and the guest gets nothing.
func (t *track) sent(f wire.Frame) (forward bool, out wire.Frame, reply *wire.Reply, err error) {
	switch f.Type {
	case wire.TypeStart, wire.TypeFS, wire.TypeDial, wire.TypeWatch, wire.TypeKill:
		if _, there := t.requests[f.ID]; there || t.programs[f.ID] != nil {
			return false, f, nil, errGuest
		}
	}
	switch f.Type {
	case wire.TypeStart:
		var s wire.Start
		if err := s.Decode(f.Payload); err != nil {
			return false, f, nil, errGuest
		}
		t.requests[f.ID] = request{f.Type, s.Terminal.Rows > 0}
	case wire.TypeFS, wire.TypeDial, wire.TypeWatch:
		t.requests[f.ID] = request{kind: f.Type}
	case wire.TypeKill:
		var k wire.Kill
		if err := k.Decode(f.Payload); err != nil {
			return false, f, nil, errGuest
		}
		if k.Tag>>epochShift != t.epoch {
			return false, f, &wire.Reply{}, nil // the tag is older than the last reset, which ended its processes
		}
		k.Tag &= 1<<epochShift - 1
		f.Payload = k.Append(nil)
		t.requests[f.ID] = request{kind: f.Type}
	case wire.TypeSignal:
		var s wire.Signal
		if err := s.Decode(f.Payload); err != nil {
			return false, f, nil, errGuest
		}
		if p := t.programs[f.ID]; p != nil && s.Number == sigKill && p.running && !p.killed {
			p.killed = true
			t.killing++
		}
	case wire.TypeData, wire.TypeCredit, wire.TypeClose, wire.TypeResize:
	default:
		return false, f, nil, errGuest
	}
	return true, f, nil, nil
}

// received processes a frame of the guest and returns the frame for the host.
func (t *track) received(f wire.Frame) (wire.Frame, error) {
	switch f.Type {
	case wire.TypeReply:
		return t.answered(f)
	case wire.TypeExited:
		p := t.programs[f.ID]
		if p == nil || !p.running {
			return f, errGuest
		}
		p.running = false
		if p.killed {
			t.killing--
		}
		t.removeEnded(f.ID, p)
	case wire.TypeClose:
		ch, _, err := wire.DecodeChannel(f.Payload)
		p := t.programs[f.ID]
		if err != nil || ch > channelErr || p == nil {
			return f, errGuest
		}
		p.open[ch] = false
		t.removeEnded(f.ID, p)
	case wire.TypeData, wire.TypeCredit:
		if t.programs[f.ID] == nil && f.Type == wire.TypeData {
			return f, errGuest
		}
	default:
		return f, errGuest
	}
	return f, nil
}

func (t *track) removeEnded(id uint32, p *program) {
	if !p.running && !p.open[channelOut] && !p.open[channelErr] {
		delete(t.programs, id)
	}
}

// answered processes a Reply.
func (t *track) answered(f wire.Frame) (wire.Frame, error) {
	var r wire.Reply
	asked, there := t.requests[f.ID]
	if !there || r.Decode(f.Payload) != nil {
		return f, errGuest
	}
	delete(t.requests, f.ID)
	if r.Failure != wire.OK {
		return f, nil
	}
	switch asked.kind {
	case wire.TypeDial, wire.TypeWatch:
		t.programs[f.ID] = &program{open: [3]bool{channelOut: true}}
	case wire.TypeStart:
		var s wire.Started
		if s.Decode(r.Data) != nil || s.Tag>>epochShift != 0 {
			return f, errGuest
		}
		t.programs[f.ID] = &program{running: true, open: [3]bool{channelOut: true, channelErr: !asked.terminal}}
		s.Tag |= t.epoch << epochShift
		r.Data = s.Append(nil)
		f.Payload = r.Append(nil)
	}
	return f, nil
}

// abort returns the frames that tell the host the end of all work in progress, and starts the next
// epoch.
func (t *track) abort() []wire.Frame {
	var all []wire.Frame
	for id := range t.requests {
		r := wire.Reply{Failure: wire.FailProtocol, Errno: eintr}
		all = append(all, wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil)})
	}
	for id, p := range t.programs {
		for ch, open := range p.open {
			if open {
				all = append(all, wire.Frame{Type: wire.TypeClose, ID: id, Payload: wire.AppendChannel(nil, uint8(ch))})
			}
		}
		if p.running {
			e := wire.Exited{Signal: sigKill}
			all = append(all, wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)})
		}
	}
	*t = track{requests: map[uint32]request{}, programs: map[uint32]*program{}, epoch: t.epoch + 1}
	return all
}

// frames splits a stream of bytes into frames.
type frames struct{ b []byte }

// add adds bytes.
func (s *frames) add(b []byte) { s.b = append(s.b, b...) }

// next returns the next complete frame; ok is false if there is none.
func (s *frames) next() (f wire.Frame, ok bool, err error) {
	if len(s.b) < wire.HeaderSize {
		return f, false, nil
	}
	h, err := wire.ParseHeader(s.b[:wire.HeaderSize])
	if err != nil || h.FDs != 0 {
		return f, false, errGuest
	}
	size := wire.HeaderSize + int(h.Length)
	if len(s.b) < size {
		return f, false, nil
	}
	f = wire.Frame{Type: h.Type, ID: h.ID, Payload: append([]byte(nil), s.b[wire.HeaderSize:size]...)}
	s.b = s.b[size:]
	if len(s.b) == 0 {
		s.b = nil
	}
	return f, true, nil
}

// appendFrame appends the encoding of a frame.
func appendFrame(b []byte, f wire.Frame) []byte {
	b = wire.AppendHeader(b, wire.Header{Length: uint32(len(f.Payload)), Type: f.Type, ID: f.ID})
	return append(b, f.Payload...)
}
