package httpd

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const unixPrefix = "unix:"

// Bind binds an address: "HOST:PORT", or "unix:/path" for a socket that only this user can open.
// Unavailable: the address cannot be bound. Exists: the path is in use by something other than the
// socket of a dead daemon.
func Bind(listen string) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(listen, unixPrefix)
	var ln net.Listener
	var err error
	if isSocket {
		ln, err = bindSocket(path)
	} else {
		ln, err = net.Listen("tcp", listen)
	}
	if err == nil {
		return ln, nil
	}
	var already *sandbar.Error
	if errors.As(err, &already) {
		return nil, err
	}
	e := sandbar.Errorf(sandbar.Unavailable, "cannot listen on %s: %w", sandbar.Quote(listen, 200), cause(err))
	e.Field = "listen"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Fix = "end what listens there, or choose another address"
	case errors.Is(err, fs.ErrPermission):
		e.Fix = "choose a port from 1024 up, or run as a user who may"
	default:
		e.Fix = "choose an address of this machine"
	}
	return nil, e
}

// cause returns an error without the address, which the message already has.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// bindSocket creates a UNIX socket that only the daemon's user can open. It replaces the socket of
// a dead daemon, but neither that of a running one nor any other file.
func bindSocket(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &sandbar.Error{Code: sandbar.Exists, Field: "listen", Message: "cannot listen on " + sandbar.Quote(path, 200) + ": the path exists and is not a socket",
			Fix: "remove it, or choose another path"}
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return &sandbar.Error{Code: sandbar.Exists, Field: "listen", Message: "cannot listen on " + sandbar.Quote(path, 200) + ": another process listens there",
			Fix: "end it, or choose another path"}
	}
	return os.Remove(path)
}

// isLoopback reports whether only this machine can reach the address.
func isLoopback(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}
