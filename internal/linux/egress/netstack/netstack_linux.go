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
	dns  tcpip.Endpoint // of questions over UDP
}

// nic is the number of the stack's one interface.
const nic = 1

// Lives of connections that both sides have closed. There is one hop that loses
// nothing, so there are no late packets to wait for.
const (
	timeWait = time.Second
	finWait  = 10 * time.Second
)

func newNetstack(l *Link) (*netstack, error) {
	s := &netstack{link: l, wire: &endpoint{dev: l.dev, count: l.count}}
	s.ip = stack.New(stack.Options{
		// Packets to 127.0.0.0/8 never get here from a kernel that means well. They
		// are let in because the policy's answer is better than none.
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

// configure makes the stack answer for every address there is.
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

	// "Moderate" offers windows up to the largest size; the size itself grows only
	// when it is told to, and each connection is told its own once.
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

// serve has new connections and flows come to the link.
func (s *netstack) serve() error {
	if err := s.listenDNS(); err != nil {
		return err
	}
	// Beyond so many under way a request to connect is dropped, and comes again.
	t := tcp.NewForwarder(s.ip, firstWindow, int(s.link.conns.most), s.onTCP)
	s.ip.SetTransportProtocolHandler(tcp.ProtocolNumber, t.HandlePacket)
	// Always handled: onUDP itself sends the refusal that the stack would send.
	u := udp.NewForwarder(s.ip, func(r *udp.ForwarderRequest) bool {
		s.onUDP(r)
		return true
	})
	s.ip.SetTransportProtocolHandler(udp.ProtocolNumber, u.HandlePacket)
	return nil
}

// inject gives the stack a packet, which is copied.
func (s *netstack) inject(packet []byte) {
	proto := ipv4.ProtocolNumber
	if packet[0]>>4 == 6 {
		proto = ipv6.ProtocolNumber
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	s.wire.deliver(proto, pkt)
	pkt.DecRef()
}

// close cuts all connections. Those who carry them come to their ends.
func (s *netstack) close() {
	s.wire.Attach(nil)
	s.dns.Close()
	s.ip.Close()
}

// wait returns when nothing of the stack runs.
func (s *netstack) wait() {
	s.ip.Close() // what was being made when close looked
	s.ip.Wait()
}

// endpoint is the stack's interface: the device.
type endpoint struct {
	dev   Device
	count func(bytes int)

	mu  sync.RWMutex
	out stack.NetworkDispatcher // nil before and after the interface
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

// Attach connects the interface to the stack, or with nil takes it away.
func (w *endpoint) Attach(d stack.NetworkDispatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = d
}

// IsAttached reports whether the interface is connected to the stack.
func (w *endpoint) IsAttached() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.out != nil
}

// Capabilities: packets come from the sandbox's kernel by memory, so their
// checksums need no second look.
func (w *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// MTU is the link's.
func (w *endpoint) MTU() uint32 { return wire.MTU }

// SetMTU does nothing: both ends have the same for good.
func (w *endpoint) SetMTU(uint32) {}

// MaxHeaderLength is 0: packets have no header below IP's.
func (w *endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress is none.
func (w *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress does nothing.
func (w *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Wait returns at once: the goroutine that reads is the Link's.
func (w *endpoint) Wait() {}

// ARPHardwareType is that of a link without addresses.
func (w *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader does nothing.
func (w *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader does nothing.
func (w *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close does nothing: the device is the Link's.
func (w *endpoint) Close() {}

// SetOnCloseAction does nothing: no one asks for it.
func (w *endpoint) SetOnCloseAction(func()) {}

// addrPort is an address of the stack in the form of the rest.
func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip, port)
}
