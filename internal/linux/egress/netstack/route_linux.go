package netstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// routes queries the kernel's routing (RTM_GETROUTE, rtnetlink(7)). Unlike a list of interface
// addresses, it knows every address that reaches this machine: secondary addresses, those of dummy
// interfaces, ranges with a "local" route.
type routes struct {
	mu  sync.Mutex
	fd  int
	seq uint32
}

func openRoutes() (*routes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("a netlink socket: %w", err)
	}
	// The kernel answers before the request returns, so this timeout only guards against a kernel
	// bug.
	tv := unix.NsecToTimeval(int64(routeTimeout))
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("a netlink socket: %w", err)
	}
	return &routes{fd: fd}, nil
}

const routeTimeout = 1e9 // nanoseconds

func (r *routes) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}

// own reports whether packets to a are delivered on this machine, or to several machines.
// errNoRoute: they are not delivered at all.
func (r *routes) own(a netip.Addr) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	req := appendRouteRequest(nil, r.seq, a)
	if err := unix.Sendto(r.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, err
	}
	var buf [4096]byte
	for {
		n, from, err := unix.Recvfrom(r.fd, buf[:], 0)
		if err != nil {
			return false, err
		}
		if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
			continue // not from the kernel
		}
		kind, seq, err := parseRoute(buf[:n])
		if seq != r.seq {
			continue
		}
		return kind != unix.RTN_UNICAST, err
	}
}

// appendRouteRequest appends an RTM_GETROUTE for one address.
func appendRouteRequest(b []byte, seq uint32, a netip.Addr) []byte {
	raw, family := a.AsSlice(), byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	ne := binary.NativeEndian
	attr := unix.SizeofRtAttr + len(raw)
	b = ne.AppendUint32(b, uint32(unix.SizeofNlMsghdr+unix.SizeofRtMsg+attr))
	b = ne.AppendUint16(b, unix.RTM_GETROUTE)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST)
	b = ne.AppendUint32(b, seq)
	b = ne.AppendUint32(b, 0)
	b = append(b, family, byte(len(raw)*8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // struct rtmsg
	b = ne.AppendUint16(b, uint16(attr))
	b = ne.AppendUint16(b, unix.RTA_DST)
	return append(b, raw...)
}

// parseRoute returns the route's type (RTN_*) from the kernel's answer.
func parseRoute(b []byte) (kind uint8, seq uint32, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return 0, 0, errors.New("netlink: an answer is cut short")
	}
	ne := binary.NativeEndian
	what, seq := ne.Uint16(b[4:]), ne.Uint32(b[8:])
	b = b[unix.SizeofNlMsghdr:]
	switch {
	case what == unix.NLMSG_ERROR && len(b) >= 4:
		e := unix.Errno(-int32(ne.Uint32(b)))
		switch e {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL, unix.EACCES:
			return 0, seq, errNoRoute // EINVAL: blackhole; EACCES: prohibit
		}
		return 0, seq, e
	case what == unix.RTM_NEWROUTE && len(b) >= unix.SizeofRtMsg:
		return noRoute(b[7], seq)
	}
	return 0, seq, errors.New("netlink: an answer of another kind")
}

// noRoute returns errNoRoute for route types that lead nowhere.
func noRoute(kind uint8, seq uint32) (uint8, uint32, error) {
	switch kind {
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return kind, seq, errNoRoute
	}
	return kind, seq, nil
}
