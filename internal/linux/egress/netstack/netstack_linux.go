package netstack

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// netstack is the TCP/IP stack of a link.
type netstack struct {
	link *Link
	ip   *stack.Stack
	wire *endpoint
	dns  tcpip.Endpoint // of queries over UDP
}

// nic is the id of the stack's only interface.
const nic = 1

// Lifetime of closed connections. The link is one hop without loss, so no late packets can arrive.
const (
	timeWait = time.Second
	finWait  = 10 * time.Second
)

func newNetstack(l *Link) (*netstack, error) {
	s := &netstack{link: l, wire: &endpoint{dev: l.dev, count: l.count}}
	s.ip = stack.New(stack.Options{
		// A correct kernel sends no packets to 127.0.0.0/8 here. They are accepted so that the
		// policy answers them.
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}),
			ipv6.NewProtocolWithOptions(ipv6.Options{AllowExternalLoopbackTraffic: true})},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	err := s.configure()
	if err == nil {
		err = s.serve()
	}
	if err != nil {
		s.ip.Close()
		s.ip.Wait()
		return nil, err
	}
	return s, nil
}

// configure makes the stack accept every destination address.
func (s *netstack) configure() error {
	var errs []error
	ok := func(what string, err tcpip.Error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %v", what, err))
		}
	}
	ok("the interface", s.ip.CreateNIC(nic, s.wire))
	ok("any destination", s.ip.SetPromiscuousMode(nic, true))
	ok("any source", s.ip.SetSpoofing(nic, true))
	ok("the gateway's address", s.ip.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(wire.Gateway.As4()).WithPrefix()}, stack.AddressProperties{}))
	s.ip.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})

	// Moderation lets the stack offer windows up to the maximum. The buffer's size itself stays,
	// and each connection sets its own once.
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	ok("receive buffers", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate))
	ok("receive buffers", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 1, Default: leastBuffer, Max: mostBuffer}))
	ok("send buffers", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber,
		&tcpip.TCPSendBufferSizeRangeOption{Min: 1, Default: leastBuffer, Max: mostBuffer}))
	sack, wait, fin := tcpip.TCPSACKEnabled(true), tcpip.TCPTimeWaitTimeoutOption(timeWait), tcpip.TCPLingerTimeoutOption(finWait)
	ok("selective acknowledgements", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	ok("waiting after the end", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, &wait))
	ok("waiting for the end", s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, &fin))
	return errors.Join(errs...)
}

// serve accepts new connections and flows.
func (s *netstack) serve() error {
	if err := s.listenDNS(); err != nil {
		return err
	}
	// Connection requests beyond this number are dropped, and retransmitted by the program's
	// kernel.
	t := tcp.NewForwarder(s.ip, firstWindow, int(s.link.conns.most), s.onTCP)
	s.ip.SetTransportProtocolHandler(tcp.ProtocolNumber, t.HandlePacket)
	// always handled: onUDP sends the ICMP error that the stack would send
	u := udp.NewForwarder(s.ip, func(r *udp.ForwarderRequest) bool {
		s.onUDP(r)
		return true
	})
	s.ip.SetTransportProtocolHandler(udp.ProtocolNumber, u.HandlePacket)
	return nil
}

// inject passes a copy of a packet to the stack.
func (s *netstack) inject(packet []byte) {
	proto := ipv4.ProtocolNumber
	if packet[0]>>4 == 6 {
		proto = ipv6.ProtocolNumber
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	s.wire.deliver(proto, pkt)
	pkt.DecRef()
}

// close cuts all connections, whose goroutines then end.
func (s *netstack) close() {
	s.wire.Attach(nil)
	s.dns.Close()
	s.ip.Close()
}

// wait returns when nothing of the stack runs.
func (s *netstack) wait() {
	s.ip.Close() // connections that were being created during close
	s.ip.Wait()
}

// endpoint is the stack's link endpoint: the device.
type endpoint struct {
	dev   Device
	count func(bytes int)

	mu  sync.RWMutex
	out stack.NetworkDispatcher // nil while the interface is not attached
}

var _ stack.LinkEndpoint = (*endpoint)(nil)

func (w *endpoint) deliver(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	w.mu.RLock()
	d := w.out
	w.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(proto, pkt)
	}
}

// WritePackets sends packets to the sandbox.
func (w *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range list.AsSlice() {
		w.count(pkt.Size())
		w.dev.Send(pkt.AsSlices())
		n++
	}
	return n, nil
}

// Attach attaches the interface to the stack; nil detaches it.
func (w *endpoint) Attach(d stack.NetworkDispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = d
}

// IsAttached reports whether the interface is attached.
func (w *endpoint) IsAttached() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.out != nil
}

// Capabilities: packets come from the sandbox's kernel through memory, so checksums need not be
// verified.
func (w *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// MTU returns the link's MTU.
func (w *endpoint) MTU() uint32 { return wire.MTU }

// SetMTU does nothing: the MTU is constant.
func (w *endpoint) SetMTU(uint32) {}

// MaxHeaderLength returns 0: there is no link-layer header.
func (w *endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress returns "".
func (w *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress does nothing.
func (w *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Wait returns at once: the reading goroutine belongs to the Link.
func (w *endpoint) Wait() {}

// ARPHardwareType returns that of a link without addresses.
func (w *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader does nothing.
func (w *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader does nothing.
func (w *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close does nothing: the device belongs to the Link.
func (w *endpoint) Close() {}

// SetOnCloseAction does nothing: it is not used.
func (w *endpoint) SetOnCloseAction(func()) {}

// addrPort converts an address of the stack.
func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip, port)
}
