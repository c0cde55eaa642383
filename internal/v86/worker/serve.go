package worker

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/v86/machine"
)

// server is a machine that serves the agent's protocol.
type server struct {
	emulator *machine.Emulator
	fresh    *machine.Snapshot
	memory   int64
	discard  func()
	out      io.Writer

	ctx   context.Context
	m     *machine.Machine
	loop  *loop
	track *track
	come  frames // from the guest

	stale bool          // the guest's clock may be wrong
	heard time.Duration // when the agent last did something, by the machine's clock
	swept bool          // memory that is not needed was given back
}

// maxGenerated is how many bytes of modules may be generated of the guest's code
// before the machine is made anew, since none of them can be taken back.
const maxGenerated = 24 << 20

// patience is how long the agent may take, of the machine's time, for what it
// must do: answering a request, and ending a program that was killed.
const patience = 20 * time.Second

var errDeaf = errors.New("the agent in the machine does not answer any more")

// serve speaks the agent's protocol until in ends.
func (s *server) serve(ctx context.Context, in io.Reader) error {
	s.ctx, s.track = ctx, newTrack()
	if err := s.begin(s.fresh); err != nil {
		return err
	}
	input := make(chan []byte, 16)
	go readFrames(in, input)
	s.loop = &loop{m: s.m, input: input, translate: s.fromHost, console: ignore, output: s.fromGuest,
		busy: s.track.busy, step: s.watch, rest: s.rest}
	hello := wire.Hello{Generation: wire.Generation}
	if err := s.write(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)}); err != nil {
		return err
	}
	err := s.loop.run()
	s.m.Close()
	return err
}

// begin makes the machine of a snapshot.
func (s *server) begin(from *machine.Snapshot) (err error) {
	s.m, err = s.emulator.New(s.ctx, machine.Config{Memory: s.memory, Snapshot: from})
	s.stale, s.swept = true, false
	return err
}

func ignore([]byte) error { return nil }

// readFrames reads frames to the end of in, each into one piece.
func readFrames(in io.Reader, to chan<- []byte) {
	defer close(to)
	for {
		b := make([]byte, wire.HeaderSize)
		if _, err := io.ReadFull(in, b); err != nil {
			return
		}
		h, err := wire.ParseHeader(b)
		if err != nil || h.FDs != 0 {
			return
		}
		b = append(b, make([]byte, h.Length)...)
		if _, err := io.ReadFull(in, b[wire.HeaderSize:]); err != nil {
			return
		}
		to <- b
	}
}

// fromHost takes a frame of the host and returns what the guest gets.
func (s *server) fromHost(b []byte) ([]byte, error) {
	h, err := wire.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{Type: h.Type, ID: h.ID, Payload: b[wire.HeaderSize:]}
	if f.Type == wire.TypeSetup {
		return nil, s.reset(f.ID)
	}
	waited := s.track.waiting()
	forward, f, reply, err := s.track.sent(f)
	if err != nil {
		return nil, err
	}
	if reply != nil {
		return nil, s.write(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: reply.Append(nil)})
	}
	if !forward {
		return nil, nil
	}
	if !waited {
		s.heard = s.m.Clock()
	}
	var out []byte
	if s.stale {
		s.stale = false
		clock := wire.Clock{Time: time.Now().UnixNano()}
		out = appendFrame(out, wire.Frame{Type: wire.TypeClock, Payload: clock.Append(nil)})
	}
	return appendFrame(out, f), nil
}

// fromGuest takes what the guest sends, and passes on what is whole.
func (s *server) fromGuest(b []byte) error {
	s.come.add(b)
	for {
		f, whole, err := s.come.next()
		if err != nil || !whole {
			return err
		}
		s.heard = s.m.Clock()
		if f, err = s.track.received(f); err != nil {
			return err
		}
		if err := s.write(f); err != nil {
			return err
		}
	}
}

func (s *server) write(f wire.Frame) error {
	_, err := s.out.Write(appendFrame(nil, f))
	return err
}

// reset takes the machine back to the snapshot and answers the request id.
func (s *server) reset(id uint32) error {
	for _, f := range s.track.end() {
		if err := s.write(f); err != nil {
			return err
		}
	}
	if err := s.m.Restore(s.fresh); err != nil {
		return err
	}
	s.come, s.loop.pending, s.stale, s.swept = frames{}, nil, true, false
	r := wire.Reply{Data: wire.AppendHandle(nil, 0)}
	return s.write(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil)})
}

// watch looks after each step whether the agent is alive, and whether the
// machine has become too large.
func (s *server) watch() error {
	if s.track.waiting() && s.m.Clock()-s.heard > patience {
		return errDeaf
	}
	if _, n := s.m.Compiled(); n > maxGenerated {
		return s.renew()
	}
	return nil
}

// renew makes the machine anew, as it is, without what has been generated.
func (s *server) renew() error {
	now, err := s.m.Save()
	if err != nil {
		return err
	}
	waiting := s.m.Channel.Unread()
	s.m.Close()
	if err := s.begin(now); err != nil {
		return err
	}
	s.loop.m = s.m
	s.m.Channel.Write(waiting)
	return nil
}

// rest is called when the machine begins to stand still.
func (s *server) rest() {
	s.stale = true
	if !s.swept {
		s.swept = true
		s.discard()
		debug.FreeOSMemory()
	}
}
