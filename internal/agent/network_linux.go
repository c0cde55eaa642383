package agent

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// makeInterface creates the plan's network interface, if the plan has one. It must run while the
// agent still sees the host's device node and has CAP_NET_ADMIN in its network namespace.
func (a *agent) makeInterface(i *wire.Interface) (step string, err error) {
	if i.Name == "" {
		return "", nil
	}
	if i.Device != "" {
		fd, err := OpenTun(i.Device, i.Name)
		if err != nil {
			return "make the network device " + i.Name, err
		}
		a.tun = []int{fd}
	}
	// addr_gen_mode 1 (IN6_ADDR_GEN_MODE_NONE) keeps the kernel from adding a link-local address
	// and from soliciting routers: the interface has the plan's addresses only. The write fails on
	// a kernel without IPv6, which has nothing to disable.
	_ = writeFile("/proc/sys/net/ipv6/conf/"+i.Name+"/addr_gen_mode", "1")
	if err := configure(i); err != nil {
		return "configure the network device " + i.Name, err
	}
	return "", nil
}

// OpenTun creates a TUN device (IFF_TUN, IFF_NO_PI) in the calling thread's network namespace.
// device is /dev/net/tun or another node of it. The device is persistent (TUNSETPERSIST), so it
// lives as long as the namespace: closing the descriptor of a device that is not persistent waits
// for RCU grace periods, which take longer than the rest of a sandbox's life.
func OpenTun(device, name string) (int, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
		if err == nil {
			err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// configure brings the interface up with the plan's addresses and routes.
func configure(i *wire.Interface) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	index, err := indexOf(i.Name)
	if err != nil {
		return err
	}
	for k, addr := range i.Addrs {
		b := netlinkBatch{}
		if k == 0 {
			b.setLinkUp(index, i.MTU)
		}
		b.addAddress(index, addr)
		b.addDefaultRoute(index, addr)
		if err := b.send(fd); err != nil && k == 0 {
			return err // IPv6 may be missing or disabled
		}
	}
	return nil
}

// indexOf returns the index of an interface.
func indexOf(name string) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return req.Uint32(), nil
}

// netlinkBatch is a sequence of rtnetlink(7) requests that are sent together. The kernel
// acknowledges each.
type netlinkBatch struct {
	b        []byte
	requests int
}

// request appends a request: its fixed header, then its attributes, padded to 4 bytes.
func (r *netlinkBatch) request(kind, flags uint16, fixed []byte, attrs ...routeAttr) {
	size := unix.SizeofNlMsghdr + len(fixed)
	for _, a := range attrs {
		size += unix.SizeofRtAttr + (len(a.value)+3)&^3
	}
	r.requests++
	ne := binary.NativeEndian
	r.b = ne.AppendUint32(r.b, uint32(size))
	r.b = ne.AppendUint16(r.b, kind)
	r.b = ne.AppendUint16(r.b, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	r.b = ne.AppendUint32(r.b, uint32(r.requests))
	r.b = ne.AppendUint32(r.b, 0)
	r.b = append(r.b, fixed...)
	for _, a := range attrs {
		r.b = ne.AppendUint16(r.b, uint16(unix.SizeofRtAttr+len(a.value)))
		r.b = ne.AppendUint16(r.b, a.kind)
		r.b = append(r.b, a.value...)
		for len(r.b)%4 != 0 {
			r.b = append(r.b, 0)
		}
	}
}

// routeAttr is an attribute of a request.
type routeAttr struct {
	kind  uint16
	value []byte
}

func number(kind uint16, v uint32) routeAttr {
	return routeAttr{kind, binary.NativeEndian.AppendUint32(nil, v)}
}

// setLinkUp sets the interface's MTU and brings it up.
func (r *netlinkBatch) setLinkUp(index, mtu uint32) {
	fixed := make([]byte, unix.SizeofIfInfomsg)
	ne := binary.NativeEndian
	ne.PutUint32(fixed[4:], index)
	ne.PutUint32(fixed[8:], unix.IFF_UP)
	ne.PutUint32(fixed[12:], unix.IFF_UP)
	r.request(unix.RTM_NEWLINK, 0, fixed, number(unix.IFLA_MTU, mtu))
}

// addAddress adds an address. IFA_F_NODAD skips duplicate address detection: no other host is on
// this link.
func (r *netlinkBatch) addAddress(index uint32, a wire.Addr) {
	fixed := binary.NativeEndian.AppendUint32([]byte{family(a), a.Bits, unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}, index)
	r.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed, routeAttr{unix.IFA_LOCAL, a.IP}, routeAttr{unix.IFA_ADDRESS, a.IP})
}

// addDefaultRoute adds a default route through the address's gateway.
func (r *netlinkBatch) addDefaultRoute(index uint32, a wire.Addr) {
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0], fixed[4], fixed[5], fixed[7] = family(a), unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RTN_UNICAST
	r.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed, routeAttr{unix.RTA_GATEWAY, a.Gateway}, number(unix.RTA_OIF, index))
}

func family(a wire.Addr) byte {
	if len(a.IP) == 16 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// send sends the requests and returns the first error among the acknowledgements.
func (r *netlinkBatch) send(fd int) error {
	if err := unix.Sendto(fd, r.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var failed error
	var b [4096]byte
	for got := 0; got < r.requests; {
		n, _, err := unix.Recvfrom(fd, b[:], 0)
		if err != nil {
			return err
		}
		k, err := countAcks(b[:n])
		if k == 0 && err == nil {
			return unix.EPROTO
		}
		if failed == nil {
			failed = err
		}
		got += k
	}
	return failed
}

// countAcks returns the number of acknowledgements in b and their first error.
func countAcks(b []byte) (n int, failed error) {
	ne := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr+4 {
		size := int(ne.Uint32(b))
		if size < unix.SizeofNlMsghdr+4 || size > len(b) {
			return n, unix.EPROTO
		}
		if ne.Uint16(b[4:]) == unix.NLMSG_ERROR {
			n++
			if e := -int32(ne.Uint32(b[unix.SizeofNlMsghdr:])); e != 0 && failed == nil {
				failed = unix.Errno(e)
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return n, failed
}
