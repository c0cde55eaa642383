package netstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
)

// Bounds of one sandbox's queries.
const (
	questionsPerSecond = 50
	questionBurst      = 200
	questionsAtOnce    = 32
	// longestQuestion is in bytes: a name of 255 bytes, plus options.
	longestQuestion = 1024
	longestAnswer   = 64 << 10
)

// Timeouts of the operator's name servers: for one, and for all.
const (
	serverPatience = 3 * time.Second
	namesPatience  = 8 * time.Second
)

// resolver forwards queries to name servers. It does not interpret names.
type resolver struct {
	servers atomic.Pointer[[]netip.AddrPort]
	changed chan struct{} // signalled when the servers change
}

func newResolver(servers []netip.AddrPort) *resolver {
	r := &resolver{changed: make(chan struct{}, 1)}
	r.set(servers)
	return r
}

// set replaces the servers. It ignores those beyond wire.MaxServers.
func (r *resolver) set(servers []netip.AddrPort) {
	servers = servers[:min(len(servers), wire.MaxServers)]
	r.servers.Store(&servers)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// list returns the servers.
func (r *resolver) list() []netip.AddrPort { return *r.servers.Load() }

// answer returns the answer to a query: that of the first server that answers, or an error code. It
// returns nil for a malformed query, which gets no answer. network is "udp" or "tcp".
func (r *resolver) answer(ctx context.Context, network string, question []byte) []byte {
	code, ok := inspect(question)
	if !ok {
		return nil
	}
	if code != dnsmessage.RCodeSuccess {
		return refusal(question, code)
	}
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	for _, server := range r.list() {
		a, err := exchange(ctx, network, server, question)
		if err == nil {
			return a
		}
		if ctx.Err() != nil {
			break
		}
	}
	return refusal(question, dnsmessage.RCodeServerFailure)
}

// Query types for whole zones.
const (
	typeIXFR = 251
	typeAXFR = 252
)

// inspect checks a query and returns the error code of a refused one. ok is false if it is
// malformed.
func inspect(q []byte) (code dnsmessage.RCode, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil || h.Response {
		return 0, false
	}
	if h.OpCode != 0 {
		return dnsmessage.RCodeNotImplemented, true
	}
	one, err := p.Question()
	if err != nil || len(q) > longestQuestion {
		return dnsmessage.RCodeFormatError, true
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return dnsmessage.RCodeFormatError, true
	}
	if one.Type == typeAXFR || one.Type == typeIXFR {
		return dnsmessage.RCodeRefused, true
	}
	return dnsmessage.RCodeSuccess, true
}

// refusal returns an answer with only an error code.
func refusal(question []byte, code dnsmessage.RCode) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil
	}
	h.Response, h.RecursionAvailable, h.RCode = true, true, code
	m := dnsmessage.Message{Header: h}
	if q, err := p.Question(); err == nil {
		m.Questions = []dnsmessage.Question{q}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// exchange queries one server, with a random id and from a port of its own, so that answers cannot
// be forged.
func exchange(ctx context.Context, network string, server netip.AddrPort, question []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	q := bytes.Clone(question)
	rand.Read(q[:2])
	if network == "tcp" {
		q = append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
	}
	if _, err := conn.Write(q); err != nil {
		return nil, err
	}
	if network == "tcp" {
		a, err := readMessage(conn, longestAnswer)
		if err == nil && !answers(a, q[2:]) {
			err = errors.New("an answer to another question")
		}
		return withID(a, question), err
	}
	buf := make([]byte, longestAnswer)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if answers(buf[:n], q) {
			return withID(bytes.Clone(buf[:n]), question), nil
		}
	}
}

// readMessage reads a message with its length before it, as over TCP.
func readMessage(r io.Reader, most int) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > most {
		return nil, errors.New("the message is too long")
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// answers reports whether a is an answer to query q: it has the same id, and the same question
// unless it has none.
func answers(a, q []byte) bool {
	var pa, pq dnsmessage.Parser
	ha, err := pa.Start(a)
	if err != nil || !ha.Response || !bytes.Equal(a[:2], q[:2]) {
		return false
	}
	if _, err := pq.Start(q); err != nil {
		return false
	}
	want, err := pq.Question()
	if err != nil {
		return false
	}
	got, err := pa.Question()
	if errors.Is(err, dnsmessage.ErrSectionDone) {
		return ha.RCode != dnsmessage.RCodeSuccess // some servers omit the question in a refusal
	}
	return err == nil && got.Type == want.Type && got.Class == want.Class &&
		strings.EqualFold(got.Name.String(), want.Name.String())
}

// withID sets an answer's id to that of the query.
func withID(a, question []byte) []byte {
	if len(a) >= 2 {
		copy(a, question[:2])
	}
	return a
}
