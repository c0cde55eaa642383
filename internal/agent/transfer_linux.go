package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// transfer is the memory of a frame with a piece of a file. It is reused: in an emulated machine
// new memory costs more than the transfer. The rest of the frame has at most 16 KiB.
type transfer [maxChunk + 16<<10]byte

// newTransfer returns the memory for a frame of n bytes, nil if a transfer is too large or too
// small for it. recycle takes it back.
func (l *conn) newTransfer(n int) []byte {
	if n <= 64<<10 || n > len(transfer{}) {
		return nil
	}
	mem, _ := l.transfers.Get().(*transfer)
	if mem == nil {
		mem = new(transfer)
	}
	return mem[:n]
}

// recycle takes back memory of newTransfer that nothing uses any more, and ignores other memory.
func (l *conn) recycle(b []byte) {
	if cap(b) == len(transfer{}) {
		l.transfers.Put((*transfer)(b[:cap(b)]))
	}
}

// answerRead answers an FSRead. Frame and data share one piece of memory and one write.
func (a *agent) answerRead(id uint32, r *wire.FSRequest) {
	h, err := a.lookup(r.Handle)
	if err != nil {
		a.reply(id, wire.FailFile, err, "", nil)
		return
	}
	mem := a.conn.newTransfer(len(transfer{}))
	defer a.conn.recycle(mem)
	frame := wire.AppendReply(mem[:wire.HeaderSize], func(b []byte) []byte {
		var n int
		n, err = unix.Pread(h.fd, b[len(b):len(b)+min(int(r.Size), maxChunk)], int64(r.Offset))
		return b[:len(b)+max(n, 0)]
	})
	if err != nil {
		a.reply(id, wire.FailFile, err, "", nil)
		return
	}
	wire.AppendHeader(frame[:0], wire.Header{Length: uint32(len(frame) - wire.HeaderSize), Type: wire.TypeReply, ID: id})
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	if id >= a.conn.least { // else it is for a former host
		_ = writeAll(a.conn.out, frame) // an error means that the connection is gone
	}
}
