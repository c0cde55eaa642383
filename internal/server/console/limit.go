package console

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// The bounds of failed logins.
const (
	addressFailures = 10               // of one address at once
	addressEvery    = 10 * time.Second // until an address may fail once more
	allFailures     = 200              // of all addresses at once
	allEvery        = time.Second      // until one more may fail
	maxAddresses    = 4096             // that are counted one by one
)

// limiter bounds failed logins, by address and in all. A login takes a place from both before its
// token is compared, and returns the places if it succeeds.
type limiter struct {
	now func() time.Time

	mu   sync.Mutex
	all  bucket
	each map[netip.Prefix]*bucket
}

// bucket has places, which return with time.
type bucket struct {
	taken float64
	at    time.Time // when taken was counted
}

func newLimiter() *limiter {
	return &limiter{now: time.Now, each: map[netip.Prefix]*bucket{}}
}

// take takes a place for an address. A wait of more than 0 says that there is none, and when there
// is one.
func (l *limiter) take(address string) (giveBack func(), wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	own := l.bucketOf(address, now)
	wait = max(own.wait(now, addressFailures, addressEvery), l.all.wait(now, allFailures, allEvery))
	if wait > 0 {
		return nil, wait
	}
	own.taken++
	l.all.taken++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		own.taken = max(0, own.taken-1)
		l.all.taken = max(0, l.all.taken-1)
	}, 0
}

// bucketOf returns the bucket of an address: of a network of 64 bits for IPv6, because one client
// has all addresses of it. Further addresses than maxAddresses share one.
func (l *limiter) bucketOf(address string, now time.Time) *bucket {
	key := prefixOf(address)
	if b := l.each[key]; b != nil {
		return b
	}
	if len(l.each) >= maxAddresses {
		for k, b := range l.each {
			if b.wait(now, 1, addressEvery); b.taken == 0 {
				delete(l.each, k)
			}
		}
	}
	if len(l.each) >= maxAddresses {
		key = netip.Prefix{}
	}
	if l.each[key] == nil {
		l.each[key] = &bucket{at: now}
	}
	return l.each[key]
}

// prefixOf returns the network of an address with a port; the zero Prefix for a UNIX socket.
func prefixOf(address string) netip.Prefix {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the number of bits fits
	return p
}

// wait returns how long until a place of size is free, 0 if one is. every is the time after which a
// taken place returns.
func (b *bucket) wait(now time.Time, size float64, every time.Duration) time.Duration {
	b.taken = max(0, b.taken-float64(now.Sub(b.at))/float64(every))
	b.at = now
	if over := b.taken + 1 - size; over > 0 {
		return time.Duration(over * float64(every))
	}
	return 0
}
