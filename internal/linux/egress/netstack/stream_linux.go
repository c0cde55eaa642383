package netstack

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	agentwire "github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// maxQueued bounds the bytes of packets that wait for a machine to read them.
const maxQueued = 1 << 20

// stream is a connected stream socket with packets (agentwire.PacketReader), the port of a virtual
// machine, as a Device.
type stream struct {
	file *os.File
	raw  syscall.RawConn

	writer sync.WaitGroup // the goroutine of write

	mu     sync.Mutex
	wake   sync.Cond // closed or queue have changed
	queue  [][]byte  // packets with their heads
	queued int       // bytes in queue
	closed bool
}

// isStream reports whether a descriptor is a connected socket.
func isStream(fd int) bool {
	_, err := unix.Getpeername(fd)
	return err == nil
}

// newDevice takes ownership of the descriptor of a TUN device or of a stream socket with packets.
// On failure it closes it.
func (h *Host) newDevice(fd int) (Device, error) {
	if !isStream(fd) {
		return h.NewTun(fd)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &stream{file: os.NewFile(uintptr(fd), "port")}
	s.wake.L = &s.mu
	raw, err := s.file.SyscallConn()
	if err != nil {
		s.file.Close()
		return nil, err
	}
	s.raw = raw
	s.writer.Go(s.write)
	return s, nil
}

// Receive reads packets until the socket is closed.
func (s *stream) Receive(deliver func([]byte)) error {
	var r agentwire.PacketReader
	for {
		var failed error
		err := s.raw.Read(func(fd uintptr) bool {
			for {
				n, err := unix.Read(int(fd), r.Space())
				switch {
				case err == unix.EINTR:
				case err == unix.EAGAIN:
					return false
				case err != nil:
					failed = err
					return true
				case n == 0:
					failed = unix.ECONNRESET
					return true
				default:
					r.Read(n)
					for p := r.Next(); p != nil; p = r.Next() {
						deliver(p)
					}
				}
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
	}
}

// Send queues a packet. A machine that reads too slowly loses packets, as on any network.
func (s *stream) Send(parts [][]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > agentwire.MaxPacket || s.closed || s.queued+n > maxQueued {
		return
	}
	b := agentwire.AppendPacketHead(make([]byte, 0, agentwire.PacketHead+n), n)
	for _, p := range parts {
		b = append(b, p...)
	}
	s.queue, s.queued = append(s.queue, b), s.queued+len(b)
	s.wake.Signal()
}

// write writes queued packets until the device is closed or the socket's other end is.
func (s *stream) write() {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.wake.Wait()
		}
		if s.closed {
			s.mu.Unlock()
			return
		}
		b := s.queue[0]
		s.queue, s.queued = s.queue[1:], s.queued-len(b)
		s.mu.Unlock()
		if _, err := s.file.Write(b); err != nil {
			s.mu.Lock()
			s.closed, s.queue = true, nil
			s.mu.Unlock()
			return
		}
	}
}

// Close closes the socket.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.wake.Signal()
	s.mu.Unlock()
	err := s.file.Close()
	s.writer.Wait()
	return err
}
