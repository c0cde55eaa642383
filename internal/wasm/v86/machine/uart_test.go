package machine

import (
	"bytes"
	"testing"
)

// guest accesses a serial port as a driver does.
type guest struct {
	*Port
	raised bool
	edges  int
}

func newGuest() *guest {
	g := &guest{}
	g.Port = newPort(com2, func(raise bool) {
		if raise && !g.raised {
			g.edges++
		}
		g.raised = raise
	})
	g.step()
	return g
}

func (g *guest) in(reg uint32) byte     { return g.read(com2 + reg) }
func (g *guest) out(reg uint32, v byte) { g.write(com2+reg, v) }

func TestPortNumbers(t *testing.T) {
	p := newPort(com2, func(bool) {})
	for port, want := range map[uint32]bool{0x2f7: false, 0x2f8: true, 0x2ff: true, 0x300: false, 0x3f8: false} {
		if p.owns(port) != want {
			t.Errorf("owns(%#x) = %v", port, !want)
		}
	}
}

// Linux detects a 16750 (8250_port.c, autoconfig).
func TestProbedAs16750(t *testing.T) {
	g := newGuest()
	g.out(regEnable, 0)
	if v := g.in(regEnable) & 0x0f; v != 0 {
		t.Errorf("interrupts that are off read as %#x", v)
	}
	g.out(regEnable, 0x0f)
	if v := g.in(regEnable) & 0x0f; v != 0x0f {
		t.Errorf("interrupts that are on read as %#x", v)
	}
	g.out(regEnable, 0)
	g.out(regModem, modemLoop|modemOut2|modemRTS)
	if v := g.in(regModemStatus) & 0xf0; v != 0x90 {
		t.Errorf("in a loop the modem status is %#x, want 0x90", v)
	}
	g.out(regModem, 0)
	g.out(regIdentify, fifoEnable)
	if v := g.in(regIdentify) >> 6; v != 3 {
		t.Errorf("the queue is not there: %d", v)
	}
	g.out(regLine, 0)
	g.out(regIdentify, fifoEnable|fifo64)
	if v := g.in(regIdentify) >> 5; v != 6 {
		t.Errorf("the long queue was chosen where it cannot be: %d", v)
	}
	g.out(regIdentify, fifoEnable)
	g.out(regLine, lineDivisor)
	g.out(regIdentify, fifoEnable|fifo64)
	if v := g.in(regIdentify) >> 5; v != 7 {
		t.Errorf("the long queue was not chosen: %d", v)
	}
	g.out(regData, 0x34)
	g.out(regEnable, 0x12)
	if g.divisor != 0x1234 || g.in(regData) != 0x34 || g.in(regEnable) != 0x12 {
		t.Errorf("the divisor is %#x", g.divisor)
	}
}

// Bytes pass in both directions, with an interrupt for each.
func TestBytesAndInterrupts(t *testing.T) {
	g := newGuest()
	g.out(regModem, modemRTS|modemOut2)
	if g.Write([]byte("ab")); g.raised {
		t.Error("an interrupt that was not asked for")
	}
	g.out(regEnable, enableReceive)
	if !g.raised || g.in(regIdentify)&0x0f != causeWaiting || g.in(regLineStatus)&statusReady == 0 {
		t.Error("nobody tells that bytes wait")
	}
	if a, b := g.in(regData), g.in(regData); a != 'a' || b != 'b' {
		t.Errorf("received %c%c", a, b)
	}
	if g.raised || g.in(regIdentify)&0x0f != causeNone || g.in(regLineStatus)&statusReady != 0 || g.in(regData) != 0 {
		t.Error("there is something left")
	}
	g.out(regEnable, enableReceive|enableSend)
	if !g.raised || g.in(regIdentify)&0x0f != causeSent || g.raised {
		t.Error("nobody tells that the line is free, or goes on telling")
	}
	for _, c := range []byte("xyz") {
		g.out(regData, c)
	}
	if !g.raised || string(g.Received()) != "xyz" || g.Received() != nil {
		t.Error("what was sent is not there, or twice")
	}
}

// A guest receives nothing while RTS is low.
func TestFlowControl(t *testing.T) {
	g := newGuest()
	g.out(regEnable, enableReceive)
	g.out(regModem, modemOut2)
	g.Write([]byte("a"))
	if g.raised || g.in(regLineStatus)&statusReady != 0 || g.in(regData) != 0 || g.Waiting() != 1 {
		t.Error("a byte came though the guest does not take any")
	}
	g.out(regModem, modemOut2|modemRTS)
	if !g.raised || g.in(regData) != 'a' {
		t.Error("the byte did not come afterwards")
	}
}

// If more input is queued than a driver can read in one step, it gets another interrupt in the next
// step.
func TestPace(t *testing.T) {
	g := newGuest()
	g.out(regModem, modemOut2|modemRTS)
	g.out(regEnable, enableReceive)
	sent := bytes.Repeat([]byte("0123456789"), 1000)
	g.Write(sent)
	var got []byte
	for steps := 1; g.Waiting() > 0; steps++ {
		for g.in(regLineStatus)&statusReady != 0 {
			got = append(got, g.in(regData))
		}
		if g.raised {
			t.Fatal("the interrupt stays raised")
		}
		if len(got) < len(sent) && !g.stalled() {
			t.Fatal("a port with more for the guest does not say so")
		}
		g.step()
		if steps > 10 {
			t.Fatal("it does not come to an end")
		}
	}
	if !bytes.Equal(got, sent) || g.edges != 3 {
		t.Errorf("%d bytes in %d interrupts, want %d in 3", len(got), g.edges, len(sent))
	}
}

// Each queue holds at most MaxQueue bytes.
func TestQueuesHaveALimit(t *testing.T) {
	g := newGuest()
	if n := g.Write(make([]byte, MaxQueue+10)); n != MaxQueue || g.Write([]byte("x")) != 0 {
		t.Errorf("took %d bytes", n)
	}
	for range MaxQueue + 10 {
		g.out(regData, 'x')
	}
	if n := len(g.Received()); n != MaxQueue {
		t.Errorf("held %d bytes of the guest", n)
	}
	g.out(regModem, modemLoop)
	for range MaxQueue + 10 {
		g.out(regData, 'x')
	}
	if g.Waiting() > MaxQueue {
		t.Errorf("holds %d bytes in a loop", g.Waiting())
	}
}

// restore sets the registers and empties the queues.
func TestPortState(t *testing.T) {
	g := newGuest()
	g.out(regLine, lineDivisor)
	g.out(regData, 7)
	g.out(regLine, 3)
	g.out(regIdentify, fifoEnable)
	g.out(regModem, modemOut2|modemRTS)
	g.out(regEnable, enableReceive|enableSend)
	g.out(regScratch, 0x5a)
	state := g.state()
	g.Write([]byte("lost"))
	g.send('x')
	fresh := newGuest()
	fresh.restore(state)
	if fresh.state() != state || fresh.Waiting() != 0 || fresh.Received() != nil || !fresh.raised {
		t.Errorf("restored as %+v, want %+v", fresh.state(), state)
	}
	if fresh.in(regScratch) != 0x5a || fresh.divisor != 7 {
		t.Error("registers are not as they were")
	}
	g.restore(state)
	if g.Waiting() != 0 || g.Received() != nil {
		t.Error("what was queued is still there")
	}
}
