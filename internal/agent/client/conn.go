package client

import (
	"io"
	"net"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// readFrame reads one frame. The caller owns its descriptors; on an error it has closed them.
func readFrame(conn net.Conn) (wire.Frame, error) {
	var head [wire.HeaderSize]byte
	fds, err := readWithFDs(conn, head[:])
	if err != nil {
		closeFDs(fds)
		return wire.Frame{}, err
	}
	h, err := wire.ParseHeader(head[:])
	if err == nil && int(h.FDs) != len(fds) {
		err = errViolation
	}
	if err != nil {
		closeFDs(fds)
		return wire.Frame{}, err
	}
	f := wire.Frame{Type: h.Type, ID: h.ID, FDs: fds, Payload: make([]byte, h.Length)}
	if _, err := io.ReadFull(conn, f.Payload); err != nil {
		closeFDs(fds)
		return wire.Frame{}, err
	}
	return f, nil
}
