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

// All output that a program has written to its terminal is sent before its end is reported, even if
// the kernel's worker is late.
func TestDrainTerminal(t *testing.T) {
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		slave, err := openSlave(master, wire.TerminalSize{Rows: 24, Cols: 80})
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(master), "terminal")
		s := newStreams(&conn{out: int(null.Fd())}, 7, f, f)
		s.terminal = true
		s.run()
		text := bytes.Repeat([]byte("x"), 1+i*7)
		if n, err := unix.Write(slave, text); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		s.drain()
		s.mu.Lock()
		sent := s.sent[channelOut]
		s.mu.Unlock()
		unix.Close(slave)
		s.onClose(channelOut)
		s.closeIn()
		if sent != int64(len(text)) {
			t.Errorf("%d bytes of %d were sent", sent, len(text))
		}
	}
}

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
