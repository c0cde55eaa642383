package guest

import (
	"encoding/binary"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// devicePath is a file that exists only in the runner: a write to it is a request for which WASI
// has no function, and a read returns the answer. The modules of the sandbox's Python use it.
const devicePath = "/dev/sandbar"

// The requests, by their first byte.
const (
	// a call.Command → its exit code and the length of its output (32 bits each), its output, its
	// standard error
	deviceSpawn = 'S'
	deviceMode  = 'M' // a byte: follow a link; a path → permission bits (32 bits)
	deviceChmod = 'C' // permission bits (32 bits), a path
)

// device is one open file of this kind.
type device struct {
	request []byte
	answer  []byte
	done    bool
}

// maxRequest bounds a request in bytes, so that a command fits into a frame.
const maxRequest = call.MaxFrame - 4096

func (c *wasiCall) openDevice(out uint32) call.Errno {
	fd, ok := c.fds.add(descriptor{std: true, read: true, write: true, device: &device{}})
	if !ok {
		return call.EMFILE
	}
	return c.put32(out, fd)
}

// write appends a part of the request.
func (d *device) write(pieces [][]byte) (n uint32) {
	for _, p := range pieces {
		if len(d.request)+len(p) <= maxRequest {
			d.request = append(d.request, p...)
		} else {
			d.request = append(d.request[:0], 0) // no request begins with 0
		}
		n += uint32(len(p))
	}
	return n
}

// read executes the request on the first call, and returns a part of the answer, which begins with
// an error number.
func (d *device) read(m *machine, pieces [][]byte) (n uint32) {
	if !d.done {
		d.done = true
		var errno call.Errno
		d.answer, errno = m.request(d.request)
		d.answer = append([]byte{byte(errno)}, d.answer...)
		m.used += len(d.request) + len(d.answer)
	}
	for _, p := range pieces {
		k := copy(p, d.answer)
		d.answer = d.answer[k:]
		n += uint32(k)
	}
	return n
}

// request executes a request.
func (m *machine) request(b []byte) ([]byte, call.Errno) {
	le := binary.LittleEndian
	switch {
	case len(b) > 1 && b[0] == deviceSpawn:
		return m.spawn(b[1:])
	case len(b) > 2 && b[0] == deviceMode:
		q := call.Request{Op: call.Stat, Path: string(b[2:])}
		if b[1] == 0 {
			q.Flags = call.FlagNoFollow
		}
		a := m.call(&q)
		return le.AppendUint32(nil, a.Stat.Mode), a.Errno
	case len(b) > 5 && b[0] == deviceChmod:
		a := m.call(&call.Request{Op: call.Chmod, Mode: le.Uint32(b[1:]), Path: string(b[5:])})
		return nil, a.Errno
	}
	return nil, call.EINVAL
}

// spawn runs another program of the sandbox until its end.
func (m *machine) spawn(command []byte) ([]byte, call.Errno) {
	a := m.call(&call.Request{Op: call.Spawn, Data: command})
	if a.Errno != 0 {
		return nil, a.Errno
	}
	code, handle := a.Size, a.Handle
	out, errs := m.readAll(handle), m.readAll(handle+1)
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(code))
	b = le.AppendUint32(b, uint32(len(out)))
	return append(append(b, out...), errs...), 0
}

// readAll reads a handle until its end and closes it.
func (m *machine) readAll(handle uint32) []byte {
	var all []byte
	for {
		a := m.call(&call.Request{Op: call.Read, Handle: handle, Size: call.MaxData})
		if a.Errno != 0 || len(a.Data) == 0 {
			break
		}
		all = append(all, a.Data...)
	}
	m.call(&call.Request{Op: call.Close, Handle: handle})
	return all
}
