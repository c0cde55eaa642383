package worker

import (
	"testing"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func start(id uint32) wire.Frame {
	s := wire.Start{Args: []string{"true"}}
	return wire.Frame{Type: wire.TypeStart, ID: id, Payload: s.Append(nil)}
}

func reply(id uint32, r wire.Reply) wire.Frame {
	return wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil)}
}

func started(id uint32, mark uint64) wire.Frame {
	s := wire.Started{PID: 7, Tag: mark}
	return reply(id, wire.Reply{Data: s.Append(nil)})
}

func exited(id uint32) wire.Frame {
	e := wire.Exited{}
	return wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)}
}

func closed(id uint32, channel uint8) wire.Frame {
	return wire.Frame{Type: wire.TypeClose, ID: id, Payload: wire.AppendChannel(nil, channel)}
}

func kill(id uint32, mark uint64) wire.Frame {
	k := wire.Kill{Tag: mark}
	return wire.Frame{Type: wire.TypeKill, ID: id, Payload: k.Append(nil)}
}

func signal(id uint32, number uint8) wire.Frame {
	s := wire.Signal{Number: number}
	return wire.Frame{Type: wire.TypeSignal, ID: id, Payload: s.Append(nil)}
}

// say processes a frame of the host, hear one of the guest.
func say(t *testing.T, k *track, f wire.Frame) wire.Frame {
	t.Helper()
	forward, out, answer, err := k.sent(f)
	if err != nil || !forward || answer != nil {
		t.Fatalf("sending %+v: %v, %v, %v", f, forward, answer, err)
	}
	return out
}

func hear(t *testing.T, k *track, f wire.Frame) wire.Frame {
	t.Helper()
	out, err := k.received(f)
	if err != nil {
		t.Fatalf("receiving %+v: %v", f, err)
	}
	return out
}

func want(t *testing.T, k *track, busy, waiting bool) {
	t.Helper()
	if k.busy() != busy || k.answerDue() != waiting {
		t.Errorf("busy %v, waiting %v; want %v, %v", k.busy(), k.answerDue(), busy, waiting)
	}
}

// A program is in progress from its start until it has exited and its output is closed, in either
// order.
func TestProgramIsUnderWay(t *testing.T) {
	for _, end := range [][]wire.Frame{
		{exited(1), closed(1, channelOut), closed(1, channelErr)},
		{closed(1, channelErr), closed(1, channelOut), exited(1)},
	} {
		k := newTrack()
		want(t, k, false, false)
		say(t, k, start(1))
		want(t, k, true, true)
		hear(t, k, started(1, 5))
		want(t, k, true, false)
		for _, f := range end {
			want(t, k, true, false)
			hear(t, k, f)
		}
		want(t, k, false, false)
	}
}

func TestRequestsAndRefusals(t *testing.T) {
	k := newTrack()
	say(t, k, wire.Frame{Type: wire.TypeFS, ID: 1})
	want(t, k, true, true)
	hear(t, k, reply(1, wire.Reply{Failure: wire.FailFile, Errno: 2}))
	want(t, k, false, false)
	say(t, k, start(2))
	hear(t, k, reply(2, wire.Reply{Failure: wire.FailExec, Errno: 2}))
	want(t, k, false, false)
	say(t, k, wire.Frame{Type: wire.TypeDial, ID: 3})
	hear(t, k, reply(3, wire.Reply{}))
	want(t, k, true, false)
	hear(t, k, closed(3, channelOut))
	want(t, k, false, false)
}

// A killed program must end in time, one with another signal need not.
func TestKilledIsWaitedFor(t *testing.T) {
	k := newTrack()
	say(t, k, start(1))
	hear(t, k, started(1, 5))
	say(t, k, signal(1, 15))
	want(t, k, true, false)
	say(t, k, signal(1, sigKill))
	say(t, k, signal(1, sigKill))
	want(t, k, true, true)
	hear(t, k, exited(1))
	want(t, k, true, false)
	say(t, k, signal(1, sigKill)) // it is late
	want(t, k, true, false)
}

// Process tags of before a reset match no process after it, even if the guest reuses them.
func TestMarksHaveAnEpoch(t *testing.T) {
	k := newTrack()
	mark := func() uint64 {
		var r wire.Reply
		var s wire.Started
		say(t, k, start(1))
		f := hear(t, k, started(1, 5))
		if r.Decode(f.Payload) != nil || s.Decode(r.Data) != nil {
			t.Fatal("the answer is none")
		}
		return s.Tag
	}
	first := mark()
	k.abort()
	second := mark()
	if first == second || first&(1<<epochShift-1) != 5 {
		t.Errorf("marks %#x and %#x", first, second)
	}
	forward, _, answer, err := k.sent(kill(2, first))
	if forward || answer == nil || answer.Failure != wire.OK || err != nil {
		t.Errorf("killing what is gone: %v, %v, %v", forward, answer, err)
	}
	var got wire.Kill
	if f := say(t, k, kill(3, second)); got.Decode(f.Payload) != nil || got.Tag != 5 {
		t.Errorf("the guest is asked to kill %#x", got.Tag)
	}
}

// A reset answers all pending requests and ends all programs for the host.
func TestEndTellsAll(t *testing.T) {
	k := newTrack()
	say(t, k, start(1))
	hear(t, k, started(1, 5))
	hear(t, k, closed(1, channelErr))
	say(t, k, wire.Frame{Type: wire.TypeFS, ID: 2})
	say(t, k, start(3))
	got := map[uint32][]wire.Type{}
	for _, f := range k.abort() {
		got[f.ID] = append(got[f.ID], f.Type)
		switch f.Type {
		case wire.TypeReply:
			var r wire.Reply
			if r.Decode(f.Payload) != nil || r.Failure == wire.OK {
				t.Errorf("request %d is answered with success", f.ID)
			}
		case wire.TypeExited:
			var e wire.Exited
			if e.Decode(f.Payload) != nil || e.Signal != sigKill {
				t.Errorf("program %d ended as %+v", f.ID, e)
			}
		}
	}
	if len(got) != 3 || len(got[1]) != 2 || got[1][0] != wire.TypeClose || got[1][1] != wire.TypeExited ||
		len(got[2]) != 1 || got[2][0] != wire.TypeReply || len(got[3]) != 1 || got[3][0] != wire.TypeReply {
		t.Errorf("told %v", got)
	}
	want(t, k, false, false)
}

// A violation of the protocol by the guest is an error.
func TestViolations(t *testing.T) {
	for name, f := range map[string]wire.Frame{
		"an answer to nothing":   reply(9, wire.Reply{}),
		"the end of nothing":     exited(9),
		"output of nothing":      {Type: wire.TypeData, ID: 9, Payload: []byte{channelOut, 'x'}},
		"an end of no output":    closed(9, channelOut),
		"a request":              start(9),
		"a second hello":         {Type: wire.TypeHello, ID: 0},
		"a channel there is not": closed(1, 7),
		"an answer that is none": {Type: wire.TypeReply, ID: 2, Payload: []byte{1}},
		"a mark too long":        started(2, 1<<epochShift),
	} {
		k := newTrack()
		say(t, k, start(1))
		hear(t, k, started(1, 5))
		say(t, k, start(2))
		if _, err := k.received(f); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	k := newTrack()
	say(t, k, start(1))
	if _, _, _, err := k.sent(start(1)); err == nil {
		t.Error("a second request of one id passes")
	}
}

// Frames are decoded from a stream with any boundaries between reads.
func TestFrames(t *testing.T) {
	var stream []byte
	for id := range uint32(5) {
		stream = appendFrame(stream, wire.Frame{Type: wire.TypeData, ID: id, Payload: make([]byte, 10*id)})
	}
	for cut := 1; cut < 40; cut++ {
		var s frames
		next := uint32(0)
		for rest := stream; len(rest) > 0; {
			n := min(cut, len(rest))
			s.add(rest[:n])
			rest = rest[n:]
			for {
				f, whole, err := s.next()
				if err != nil {
					t.Fatal(err)
				}
				if !whole {
					break
				}
				if f.ID != next || len(f.Payload) != int(10*next) {
					t.Fatalf("in pieces of %d: frame %d has %d bytes", cut, f.ID, len(f.Payload))
				}
				next++
			}
		}
		if next != 5 || s.b != nil {
			t.Errorf("in pieces of %d: %d frames", cut, next)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, start(1)), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		k := newTrack()
		say(t, k, start(1))
		var s frames
		cut = max(cut, 1)
		for len(b) > 0 {
			n := min(cut, len(b))
			s.add(b[:n])
			b = b[n:]
			for {
				frame, whole, err := s.next()
				if err != nil {
					return
				}
				if !whole {
					break
				}
				if _, err := k.received(frame); err != nil {
					return
				}
			}
		}
	})
}

// A program with a terminal has one output, and a watch has one too.
func TestOneOutput(t *testing.T) {
	k := newTrack()
	s := wire.Start{Args: []string{"sh"}, Terminal: wire.TerminalSize{Rows: 24, Cols: 80}}
	say(t, k, wire.Frame{Type: wire.TypeStart, ID: 1, Payload: s.Append(nil)})
	hear(t, k, started(1, 5))
	size := wire.TerminalSize{Rows: 1, Cols: 1}
	say(t, k, wire.Frame{Type: wire.TypeResize, ID: 1, Payload: size.Append(nil)})
	hear(t, k, exited(1))
	if !k.busy() {
		t.Error("not busy before the terminal's output has ended")
	}
	hear(t, k, closed(1, channelOut))
	w := wire.Watch{Path: "/"}
	say(t, k, wire.Frame{Type: wire.TypeWatch, ID: 2, Payload: w.Append(nil)})
	hear(t, k, reply(2, wire.Reply{}))
	if !k.busy() {
		t.Error("not busy during a watch")
	}
	hear(t, k, closed(2, channelOut))
	if k.busy() {
		t.Errorf("busy after everything has ended: %+v", k)
	}
}
