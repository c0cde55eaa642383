package agent

import (
	"bytes"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Output from before a program's end is sent before its Exited, however long the host grants no
// credit, and even if a descendant holds the pipe open.
func TestExitedFollowsOutput(t *testing.T) {
	host, agentEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	defer agentEnd.Close()
	l := &conn{out: int(agentEnd.Fd())}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(p[0], true)
	descendant := os.NewFile(uintptr(p[1]), "descendant")
	in, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := newStreams(l, 7, in, os.NewFile(uintptr(p[0]), "stdout"))
	s.credit[channelOut] = 0 // the host has granted no credit
	s.run()
	output := bytes.Repeat([]byte("x"), 3*maxData/2)
	if _, err := descendant.Write(output); err != nil {
		t.Fatal(err)
	}
	a := &agent{conn: l, byPID: map[int]*process{1: {id: 7, streams: s}}, byID: map[uint32]*process{}}
	a.ended(1, 0, &syscall.Rusage{})
	descendant.Close()

	frames := make(chan wire.Header)
	go func() {
		defer close(frames)
		for {
			b := make([]byte, wire.HeaderSize)
			if _, err := io.ReadFull(host, b); err != nil {
				return
			}
			h, err := wire.ParseHeader(b)
			if err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, host, int64(h.Length)); err != nil {
				return
			}
			frames <- h
		}
	}()
	if err := s.addCredit(channelOut, wire.Window); err != nil {
		t.Fatal(err)
	}
	got, exited, closed := 0, false, false
	for !exited || !closed {
		h := <-frames
		switch h.Type {
		case wire.TypeData:
			got += int(h.Length) - 1
		case wire.TypeClose:
			closed = true
		case wire.TypeExited:
			if exited = true; got != len(output) {
				t.Errorf("Exited after %d bytes of %d", got, len(output))
			}
		}
	}
}
