package netstack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// listenDNS answers DNS queries over UDP at the gateway.
func (s *netstack) listenDNS() error {
	var wq waiter.Queue
	ep, err := s.ip.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if err != nil {
		return fmt.Errorf("the gateway's name server: %v", err)
	}
	if err := ep.Bind(tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(wire.Gateway.As4()), Port: wire.DNSPort}); err != nil {
		ep.Close()
		return fmt.Errorf("the gateway's name server: %v", err)
	}
	s.dns = ep
	// newNetstack holds the link's lock, so the link cannot be closed yet.
	s.link.busy.Go(func() {
		defer ep.Close()
		for await(s.link.ctx, &wq, ep, waiter.ReadableEvents) {
			if !s.receiveQuery() {
				return
			}
		}
	})
	return nil
}

// receiveQuery reads a query and starts a goroutine that answers it. It returns false at the end.
func (s *netstack) receiveQuery() bool {
	var b bytes.Buffer
	res, err := s.dns.Read(&b, tcpip.ReadOptions{NeedRemoteAddr: true})
	switch err.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return true
	default:
		return false
	}
	question := b.Bytes()
	reply := func(answer []byte) {
		if answer != nil {
			_, _ = s.dns.Write(bytes.NewReader(answer), tcpip.WriteOptions{To: &res.RemoteAddr})
		}
	}
	l := s.link
	if l.deniesNames() || !l.asked.Allow() || !l.reserveQuery() {
		reply(refusal(question, dnsmessage.RCodeRefused))
		return true
	}
	l.busy.Go(func() {
		defer l.releaseQuery()
		reply(l.host.names.answer(l.ctx, "udp", question))
	})
	return true
}

// reserveQuery reserves the bounded resources of a query.
func (l *Link) reserveQuery() bool {
	if !l.asking.reserve(1) {
		return false
	}
	if !l.host.sockets.reserve(1) {
		l.asking.release(1)
		return false
	}
	return true
}

func (l *Link) releaseQuery() {
	l.host.sockets.release(1)
	l.asking.release(1)
}

// Bounds of a connection for queries.
const (
	dnsIdle         = 10 * time.Second
	mostOverOneConn = 100
)

// serveDNS answers DNS queries over TCP at the gateway. The connection counts as one of the
// sandbox's.
func (s *netstack) serveDNS(r *tcp.ForwarderRequest) {
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	r.Complete(err != nil)
	if err != nil {
		return
	}
	conn := gonet.NewTCPConn(&wq, ep)
	done := make(chan struct{})
	defer close(done)
	defer conn.Close()
	s.link.busy.Go(func() {
		select {
		case <-s.link.ctx.Done():
			ep.Abort()
		case <-done:
		}
	})
	for range mostOverOneConn {
		if !s.answerOver(conn) {
			return
		}
	}
}

// answerOver answers one query over TCP. It returns false at the end of the connection.
func (s *netstack) answerOver(conn net.Conn) bool {
	conn.SetDeadline(time.Now().Add(dnsIdle))
	question, err := readMessage(conn, longestQuestion)
	if err != nil {
		return false
	}
	answer := refusal(question, dnsmessage.RCodeRefused)
	if !s.link.deniesNames() && s.link.asked.Allow() {
		answer = s.link.host.names.answer(s.link.ctx, "tcp", question)
	}
	if answer == nil {
		return false
	}
	conn.SetDeadline(time.Now().Add(dnsIdle))
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err == nil
}
