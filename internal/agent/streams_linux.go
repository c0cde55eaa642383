package agent

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Channels of a process and of a dialled connection.
const (
	channelIn  = 0 // host to agent: standard input, or the bytes to send
	channelOut = 1 // agent to host: standard output, or the received bytes
	channelErr = 2 // agent to host: standard error
)

// streams moves the bytes of one process or connection in frames, for connections that cannot pass
// descriptors. All methods accept a nil receiver: a process whose descriptors the host has.
type streams struct {
	conn *conn
	id   uint32
	in   *os.File // destination of channelIn
	done func()   // called once, after the last output has ended

	mu      sync.Mutex
	changed *sync.Cond // credit or the queue has grown, or the streams are closed
	out     [3]*os.File
	credit  [3]int   // bytes that may still be sent, per channel; -1 after the host's Close
	sent    [3]int64 // output bytes that have been sent, per channel
	unsent  [3]int   // output bytes that were read and not sent yet, per channel
	closed  [3]bool  // outputs that have ended
	queue   []byte   // input that is not written yet
	// input bytes without returned credit: the queue and the bytes being written
	unacknowledged int
	inputClosed    bool // the host has closed channelIn
	openOutputs    int  // outputs that have not ended
	abandoned      bool // the host is gone: output is read and dropped
	terminal       bool // in and out are the master of a terminal
}

// maxData is the most output in one frame, in bytes. The frame fits in one write to the port of a
// machine (32 KiB, port_fops_write in drivers/char/virtio_console.c).
const maxData = 32<<10 - wire.HeaderSize - 1

// newStreams prepares channels. outs[0] is channelOut, outs[1] channelErr.
func newStreams(l *conn, id uint32, in *os.File, outs ...*os.File) *streams {
	s := &streams{conn: l, id: id, in: in, openOutputs: len(outs)}
	s.changed = sync.NewCond(&s.mu)
	for i, f := range outs {
		s.out[channelOut+i] = f
		s.credit[channelOut+i] = wire.Window
	}
	return s
}

// newProcessStreams creates the three pipes of a program and returns the program's ends. own gives
// these to uid and gid.
func newProcessStreams(l *conn, id, uid, gid uint32, own bool) (*streams, []int, error) {
	var ours, theirs [3]int
	for i := range ours {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			closeAll(ours[:i])
			closeAll(theirs[:i])
			return nil, nil, err
		}
		if i == channelIn {
			theirs[i], ours[i] = p[0], p[1]
		} else {
			ours[i], theirs[i] = p[0], p[1]
		}
		unix.SetNonblock(ours[i], true)
		if own { // else the program cannot reopen its own /dev/stdout
			unix.Fchown(theirs[i], int(uid), int(gid))
		}
	}
	s := newStreams(l, id, os.NewFile(uintptr(ours[0]), "stdin"),
		os.NewFile(uintptr(ours[1]), "stdout"), os.NewFile(uintptr(ours[2]), "stderr"))
	return s, theirs[:], nil
}

// closeAll closes the files of streams that never ran.
func (s *streams) closeAll() {
	if s == nil {
		return
	}
	s.in.Close()
	for _, f := range s.out {
		if f != nil {
			f.Close()
		}
	}
}

// run starts the copying goroutines.
func (s *streams) run() {
	if s == nil {
		return
	}
	go s.copyInput()
	for ch, f := range s.out {
		if f != nil {
			go s.copyOutput(uint8(ch), f)
		}
	}
}

// drain returns when the output that the program wrote before its end has been sent, or the host
// has closed the channel. It does not wait for output of descendants that hold the pipes open.
func (s *streams) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		s.drainTerminal()
		return
	}
	var end [3]int64
	for ch, f := range s.out {
		if f != nil {
			end[ch] = s.sent[ch] + int64(s.unsent[ch]) + bytesBuffered(f)
		}
	}
	for ch, f := range s.out {
		for f != nil && !s.closed[ch] && s.credit[ch] >= 0 && s.sent[ch] < end[ch] {
			s.changed.Wait()
		}
	}
}

// maxTerminalBuffer is more than a terminal buffers (tty_buffer_init in drivers/tty/tty_buffer.c).
const maxTerminalBuffer = 1 << 20

// drainTerminal is drain for a terminal. Its kernel worker moves written bytes to where FIONREAD
// counts them, so the output ends where poll(2) finds nothing, which waits for that worker. s.mu is
// held.
func (s *streams) drainTerminal() {
	for most := s.sent[channelOut] + maxTerminalBuffer; s.sent[channelOut] < most; {
		if s.unsent[channelOut] == 0 && !readable(s.out[channelOut]) {
			return
		}
		for sent := s.sent[channelOut]; s.sent[channelOut] == sent; s.changed.Wait() {
			if s.closed[channelOut] || s.credit[channelOut] < 0 {
				return
			}
		}
	}
}

// readable reports whether there is something to read.
func readable(f *os.File) (is bool) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(p, 0)
			is = n > 0 && p[0].Revents&unix.POLLIN != 0
		})
	}
	return is
}

// bytesBuffered returns the number of bytes in a pipe (FIONREAD, pipe(7)), 0 if it is closed.
func bytesBuffered(f *os.File) int64 {
	n := 0
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return int64(n)
}

func (s *streams) closeIn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputClosed = true
	s.changed.Broadcast()
}

// copyInput writes the host's bytes and returns credit for them. After a write error it discards
// the rest, so that the host does not block.
func (s *streams) copyInput() {
	broken, last := false, byte('\n')
	for {
		b := s.takeInput()
		if len(b) == 0 {
			break
		}
		if !broken {
			_, err := s.in.Write(b)
			broken = err != nil
		}
		last = b[len(b)-1]
		s.mu.Lock()
		s.unacknowledged -= len(b)
		s.mu.Unlock()
		s.conn.write(wire.Frame{Type: wire.TypeCredit, ID: s.id,
			Payload: wire.AppendCredit(nil, channelIn, uint32(len(b)))})
	}
	s.endIn(last)
}

// takeInput waits for input and takes the whole queue. An empty result means the end.
func (s *streams) takeInput() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.inputClosed {
		s.changed.Wait()
	}
	b := s.queue
	s.queue = nil
	return b
}

// endIn ends the input: it closes a pipe, half-closes a connection, and types Ctrl-D in a terminal.
// After an unfinished line it types it twice, because the first one only passes on that line (VEOF,
// termios(3)). last is the last byte of the input.
func (s *streams) endIn(last byte) {
	switch {
	case s.terminal:
		eof := []byte{4, 4}
		if last == '\n' || last == '\r' || last == 4 {
			eof = eof[:1]
		}
		_, _ = s.in.Write(eof) // fails after the program's end
		return
	case s.in != s.out[channelOut]:
		s.in.Close()
		return
	}
	if c, err := s.in.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// copyOutput sends an output until its end, within the credit.
func (s *streams) copyOutput(ch uint8, f *os.File) {
	buf := make([]byte, maxData)
	for {
		n := s.takeCredit(ch, len(buf))
		if n == 0 {
			break
		}
		got, err := s.readOutput(ch, f, buf[:n])
		if got > 0 {
			payload := append(wire.AppendChannel(make([]byte, 0, got+1), ch), buf[:got]...)
			if s.conn.write(wire.Frame{Type: wire.TypeData, ID: s.id, Payload: payload}) != nil {
				break
			}
		}
		s.mu.Lock()
		s.sent[ch], s.unsent[ch] = s.sent[ch]+int64(got), 0
		s.mu.Unlock()
		_ = s.addCredit(ch, n-got) // cannot exceed the window: n was taken from it
		if got == 0 || err != nil {
			break
		}
	}
	f.Close()
	s.conn.write(wire.Frame{Type: wire.TypeClose, ID: s.id, Payload: wire.AppendChannel(nil, ch)})
	s.mu.Lock()
	s.closed[ch] = true
	s.changed.Broadcast()
	s.openOutputs--
	last := s.openOutputs == 0
	s.mu.Unlock()
	if last {
		s.closeIn()
		if s.done != nil {
			s.done()
		}
	}
}

// readOutput waits for output and reads it. It returns 0 at the end. The lock is held from the read
// until unsent is set: otherwise drain could find bytes neither in the pipe nor in unsent.
func (s *streams) readOutput(ch uint8, f *os.File, b []byte) (n int, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := c.Read(func(fd uintptr) (done bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for {
			if n, err = unix.Read(int(fd), b); err != unix.EINTR {
				break
			}
		}
		for s.terminal && n > 0 && n < len(b) { // one read of a terminal returns at most 4 KiB
			more, _ := unix.Read(int(fd), b[n:]) // the next call finds an error again
			if more <= 0 {
				break
			}
			n += more
		}
		s.unsent[ch] = max(n, 0)
		return err != unix.EAGAIN
	}); cerr != nil {
		return 0, cerr
	}
	return max(n, 0), err
}

// takeCredit waits for credit and takes at most max bytes. 0 means that the host has closed the
// channel.
func (s *streams) takeCredit(ch uint8, max int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit[ch] == 0 && !s.abandoned {
		s.changed.Wait()
	}
	if s.credit[ch] < 0 {
		return 0
	}
	if s.abandoned {
		return max
	}
	n := min(max, s.credit[ch])
	s.credit[ch] -= n
	return n
}

// addCredit returns credit. More than the window is a violation.
func (s *streams) addCredit(ch uint8, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.credit[ch] >= 0 && !s.abandoned {
		if s.credit[ch] += n; s.credit[ch] > wire.Window {
			return unix.EPROTO
		}
	}
	s.changed.Broadcast()
	return nil
}

// onStream handles a frame of a channel. A frame of a closed channel is no violation: the host may
// have sent it before it received Close.
func (a *agent) onStream(f wire.Frame) error {
	ch, rest, err := wire.DecodeChannel(f.Payload)
	if err != nil || ch > channelErr {
		return unix.EPROTO
	}
	a.chanMu.Lock()
	s := a.channels[f.ID]
	a.chanMu.Unlock()
	if s == nil {
		return nil
	}
	switch f.Type {
	case wire.TypeData:
		return s.queueInput(ch, rest)
	case wire.TypeCredit:
		n, err := wire.DecodeCredit(rest)
		if err != nil || n > wire.Window || ch == channelIn {
			return unix.EPROTO
		}
		return s.addCredit(ch, int(n))
	case wire.TypeClose:
		s.onClose(ch)
	}
	return nil
}

// queueInput queues input. Exceeding the window is a violation.
func (s *streams) queueInput(ch uint8, b []byte) error {
	if ch != channelIn || len(b) == 0 {
		return unix.EPROTO
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inputClosed {
		return nil
	}
	if s.unacknowledged += len(b); s.unacknowledged > wire.Window {
		return unix.EPROTO
	}
	s.queue = append(s.queue, b...)
	s.changed.Broadcast()
	return nil
}

// onClose handles the host's Close: the end of the input, or of the host's interest in an output.
func (s *streams) onClose(ch uint8) {
	if ch == channelIn {
		s.closeIn()
		return
	}
	s.mu.Lock()
	f := s.out[ch]
	s.credit[ch] = -1
	s.changed.Broadcast()
	s.mu.Unlock()
	if f != nil {
		f.Close() // unblocks Read
	}
}

// register makes streams reachable by their id until they end.
func (a *agent) register(s *streams) {
	if s == nil {
		return
	}
	s.done = func() {
		a.chanMu.Lock()
		delete(a.channels, s.id)
		a.chanMu.Unlock()
	}
	a.chanMu.Lock()
	a.channels[s.id] = s
	a.chanMu.Unlock()
	if a.conn.isStale(s.id) { // asked for before Suspend, and made after Resume
		s.abandon()
	}
}

// onDial connects to a port on the sandbox's loopback.
func (a *agent) onDial(f wire.Frame) error {
	var d wire.Dial
	if err := d.Decode(f.Payload); err != nil || !a.ready {
		return unix.EPROTO
	}
	select {
	case a.jobs <- func() { a.dial(f.ID, d.Port) }:
	default:
		a.reply(f.ID, wire.FailDial, unix.EMFILE, "", nil)
	}
	return nil
}

func (a *agent) dial(id uint32, port uint16) {
	fd, err := dialLoopback(port)
	if err != nil {
		a.reply(id, wire.FailDial, err, "", nil)
		return
	}
	if a.conn.passesFDs {
		a.reply(id, wire.OK, nil, "", nil, fd)
		unix.Close(fd)
		return
	}
	unix.SetNonblock(fd, true)
	conn := os.NewFile(uintptr(fd), "connection")
	s := newStreams(a.conn, id, conn, conn)
	a.register(s)
	a.reply(id, wire.OK, nil, "", nil)
	s.run()
}

// dialLoopback tries IPv4 and then IPv6, since a server may listen on either.
func dialLoopback(port uint16) (int, error) {
	fd, err := connect(unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		return fd, nil
	}
	if fd6, err6 := connect(unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}); err6 == nil {
		return fd6, nil
	}
	return -1, err
}

func connect(family int, to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
