package netstack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds of the discovery of translators (NAT64): the lifetime of an answer, the pauses after a
// failure, and the number of prefixes.
const (
	leastBelief, mostBelief = time.Minute, time.Hour
	leastPause, mostPause   = 5 * time.Second, 5 * time.Minute
	mostTranslators         = 16
)

// discover keeps the policy's translators current until ctx ends. While no name server answers, the
// last known ones stay.
func (h *Host) discover(ctx context.Context) {
	pause := leastPause
	for first := true; ; first = false {
		list, belief, err := h.names.translators(ctx)
		wait := min(max(belief, leastBelief), mostBelief)
		if err == nil {
			h.policy.nat64.Store(&list)
			pause = leastPause
		} else {
			wait, pause = pause, min(2*pause, mostPause)
		}
		if first {
			close(h.asked)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-h.names.changed:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// awaitTranslators waits for the first query of the name servers, for a connection to an address
// that could be a translator's.
func (h *Host) awaitTranslators(ctx context.Context, dst netip.AddrPort) {
	if !h.discovers || !h.policy.mayTranslate(h.policy.classify(dst.Addr()), dst.Addr()) {
		return
	}
	select {
	case <-h.asked:
	case <-ctx.Done():
	}
}

// errNoAnswer: the translators could not be determined.
var errNoAnswer = errors.New("no name server has answered")

// translators queries every server for the prefixes of this network's translators (RFC 7050), and
// returns them with their lifetime. It fails if no server has answered, positively or negatively.
func (r *resolver) translators(ctx context.Context) (list []netip.Prefix, belief time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	m := dnsmessage.Message{Header: dnsmessage.Header{RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("ipv4only.arpa."), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}}}
	question, err := m.Pack()
	if err != nil {
		return nil, 0, err
	}
	belief, err = mostBelief, errNoAnswer
	for _, server := range r.list() {
		a, failed := exchange(ctx, "udp", server, question)
		if failed == nil && len(a) > 2 && a[2]&2 != 0 { // the truncation bit
			a, failed = exchange(ctx, "tcp", server, question)
		}
		if failed != nil {
			continue
		}
		found, ttl, ok := parseTranslators(a)
		if !ok {
			continue
		}
		err, belief = nil, min(belief, ttl)
		for _, p := range found {
			if !slices.Contains(list, p) && len(list) < mostTranslators {
				list = append(list, p)
			}
		}
	}
	return list, belief, err
}

// parseTranslators parses an answer. ok is false if it has neither addresses nor a negative answer.
func parseTranslators(answer []byte) (list []netip.Prefix, ttl time.Duration, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	if err != nil || h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError || p.SkipAllQuestions() != nil {
		return nil, 0, false
	}
	ttl = mostBelief
	for {
		head, err := p.AnswerHeader()
		switch {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return list, ttl, true
		case err != nil:
			return nil, 0, false
		case head.Type != dnsmessage.TypeAAAA || head.Class != dnsmessage.ClassINET:
			err = p.SkipAnswer()
		default:
			var r dnsmessage.AAAAResource
			r, err = p.AAAAResource()
			list = append(list, translators(netip.AddrFrom16(r.AAAA))...)
			ttl = min(ttl, time.Duration(head.TTL)*time.Second)
		}
		if err != nil {
			return nil, 0, false
		}
	}
}
