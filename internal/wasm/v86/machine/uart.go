package machine

// Registers of a serial port, as offsets from its first I/O port.
const (
	regData        = 0 // also the divisor's low byte
	regEnable      = 1 // of interrupts; also the divisor's high byte
	regIdentify    = 2 // reading: of interrupts; writing: FIFO control
	regLine        = 3 // line control
	regModem       = 4 // modem control
	regLineStatus  = 5
	regModemStatus = 6
	regScratch     = 7
)

// Bits of those registers.
const (
	lineDivisor   = 0x80 // the first two registers are the divisor
	fifoEnable    = 0x01
	fifoClearIn   = 0x02
	fifo64        = 0x20 // a 16750's longer queue
	modemRTS      = 0x02
	modemLoop     = 0x10
	modemOut2     = 0x08
	statusReady   = 0x01 // data ready
	statusIdle    = 0x60 // transmitter empty
	statusPeer    = 0xb0 // a peer is connected: DCD, DSR, CTS
	enableReceive = 0x01
	enableSend    = 0x02
)

// Values of the identification register.
const (
	causeNone    = 0x01
	causeSent    = 0x02
	causeWaiting = 0x04
	fifoOn       = 0xc0
)

// Port is a serial port, a 16750 UART with an infinitely fast line. The guest accesses its
// registers; the host calls Write and Received.
type Port struct {
	irq  func(raise bool)
	base uint32

	enable, fifo, line, modem, scratch byte
	divisor                            uint16
	sent                               bool // the transmitter-empty interrupt is due
	raised                             bool

	readLeft int    // bytes that the guest may still read in this step
	in       []byte // for the guest
	out      []byte // from the guest, until Received
}

// MaxQueue is the size of a port's queue in bytes, in each direction. If the host does not read,
// further output of the guest is lost.
const MaxQueue = 1 << 20

// maxReadPerStep is the number of bytes that a guest can read in one step. A driver reads until the
// port is empty, and some give up after a while and wait for an interrupt that was raised before.
const maxReadPerStep = 4096

func newPort(base uint32, irq func(raise bool)) *Port { return &Port{base: base, irq: irq} }

// owns reports whether an I/O port is one of this serial port's registers.
func (p *Port) owns(port uint32) bool { return port&^7 == p.base }

// Write queues bytes for the guest and returns how many fitted.
func (p *Port) Write(b []byte) int {
	n := min(len(b), MaxQueue-len(p.in))
	p.in = append(p.in, b[:n]...)
	p.update()
	return n
}

// Waiting returns the number of queued bytes that the guest has not read.
func (p *Port) Waiting() int { return len(p.in) }

// Unread removes and returns the queued bytes that the guest has not read.
func (p *Port) Unread() []byte {
	b := p.in
	p.in = nil
	p.update()
	return b
}

// Received returns what the guest has written since the last call.
func (p *Port) Received() []byte {
	b := p.out
	p.out = nil
	return b
}

// clearToSend reports whether the guest accepts bytes. A driver with flow control lowers RTS while
// it cannot. Until OUT2 is set, as by a boot loader without a driver, the guest always accepts.
func (p *Port) clearToSend() bool { return p.modem&modemRTS != 0 || p.modem&modemOut2 == 0 }

// ready reports whether the guest can read a byte now.
func (p *Port) ready() bool { return len(p.in) > 0 && p.readLeft > 0 && p.clearToSend() }

// stalled reports whether the guest can read more in the next step only.
func (p *Port) stalled() bool { return len(p.in) > 0 && p.readLeft == 0 && p.clearToSend() }

// step is called at the start of each step.
func (p *Port) step() {
	p.readLeft = maxReadPerStep
	p.update()
}

// update raises or lowers the interrupt line.
func (p *Port) update() {
	raise := p.cause() != causeNone
	if raise != p.raised {
		p.raised = raise
		p.irq(raise)
	}
}

// cause returns the pending interrupt with the highest priority.
func (p *Port) cause() byte {
	switch {
	case p.enable&enableReceive != 0 && p.ready():
		return causeWaiting
	case p.enable&enableSend != 0 && p.sent:
		return causeSent
	}
	return causeNone
}

// read reads a register for the guest.
func (p *Port) read(port uint32) byte {
	switch port & 7 {
	case regData:
		if p.line&lineDivisor != 0 {
			return byte(p.divisor)
		}
		return p.take()
	case regEnable:
		if p.line&lineDivisor != 0 {
			return byte(p.divisor >> 8)
		}
		return p.enable
	case regIdentify:
		return p.identify()
	case regLine:
		return p.line
	case regModem:
		return p.modem
	case regLineStatus:
		if p.ready() {
			return statusIdle | statusReady
		}
		return statusIdle
	case regModemStatus:
		return p.modemStatus()
	}
	return p.scratch
}

// take returns the next byte for the guest, or 0 if there is none.
func (p *Port) take() byte {
	if !p.ready() {
		return 0
	}
	c := p.in[0]
	p.in = p.in[1:]
	p.readLeft--
	if len(p.in) == 0 {
		p.in = nil
	}
	p.update()
	return c
}

func (p *Port) identify() byte {
	c := p.cause()
	if c == causeSent { // reading the register acknowledges it
		p.sent = false
		p.update()
	}
	if p.fifo&fifoEnable != 0 {
		c |= fifoOn | p.fifo&fifo64
	}
	return c
}

// modemStatus returns the status of a connected peer, or in loopback mode the bits of the modem
// control register, by which drivers detect a UART.
func (p *Port) modemStatus() byte {
	if p.modem&modemLoop == 0 {
		return statusPeer
	}
	m := p.modem
	return m&modemRTS<<3 | m&1<<5 | m&4<<4 | m&8<<4
}

// write writes a register for the guest.
func (p *Port) write(port uint32, v byte) {
	switch port & 7 {
	case regData:
		if p.line&lineDivisor != 0 {
			p.divisor = p.divisor&0xff00 | uint16(v)
			return
		}
		p.send(v)
	case regEnable:
		if p.line&lineDivisor != 0 {
			p.divisor = p.divisor&0xff | uint16(v)<<8
			return
		}
		if v&enableSend != 0 && p.enable&enableSend == 0 {
			p.sent = true
		}
		p.enable = v & 0x0f
	case regIdentify:
		p.control(v)
	case regLine:
		p.line = v
	case regModem:
		p.modem = v & 0x1f
	case regScratch:
		p.scratch = v
	}
	p.update()
}

// control writes the FIFO control register. A 16750 changes its 64-byte mode only while the divisor
// latch is accessible; drivers detect it by that.
func (p *Port) control(v byte) {
	if p.line&lineDivisor == 0 {
		v = v&^fifo64 | p.fifo&fifo64
	}
	if v&fifoEnable == 0 {
		v = 0
	}
	if v&fifoClearIn != 0 && p.modem&modemLoop != 0 {
		p.in = nil // only looped-back bytes are discarded, never those of the host
	}
	p.fifo = v
}

func (p *Port) send(c byte) {
	p.sent = true
	if p.modem&modemLoop != 0 {
		p.in = append(p.in[:min(len(p.in), MaxQueue-1)], c)
	} else if len(p.out) < MaxQueue {
		p.out = append(p.out, c)
	}
	p.update()
}

// portState is the saved state of a Port.
type portState struct { // its fields are exported for package json
	Enable, FIFO, Line, Modem, Scratch byte
	Divisor                            uint16
	Sent                               bool
}

func (p *Port) state() portState {
	return portState{p.enable, p.fifo, p.line, p.modem, p.scratch, p.divisor, p.sent}
}

// restore sets the registers and empties the queues. The interrupt controller's state must have
// been restored before.
func (p *Port) restore(s portState) {
	p.enable, p.fifo, p.line, p.modem, p.scratch, p.divisor, p.sent = s.Enable, s.FIFO, s.Line, s.Modem, s.Scratch, s.Divisor, s.Sent
	p.in, p.out = nil, nil
	p.raised = p.cause() != causeNone
	p.irq(p.raised)
}
