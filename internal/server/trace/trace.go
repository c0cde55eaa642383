// Package trace records traces of requests and sends them to a collector by OTLP over HTTP. It
// implements engine.Tracer. Nothing in it blocks its callers, and what the collector does not take
// in time is dropped.
package trace

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Bounds of what waits for the collector.
const (
	queueLen     = 2048            // requests and calls; further ones are dropped
	batchLen     = 512             // of these in one message
	batchDelay   = 2 * time.Second // from the first to the message
	sendTimeout  = 10 * time.Second
	firstRetry   = 500 * time.Millisecond
	logInterval  = time.Minute // between two log lines about failures
	maxRequests  = 4096        // requests in progress that are recorded; further ones are not
	keptForReply = 64 << 10    // bytes of a collector's answer that are read
)

// Options are the parameters of a Tracer.
type Options struct {
	// Endpoint is the URL to which messages are posted.
	Endpoint string
	// Headers are sent with each message.
	Headers http.Header
	// Ratio is the share of the requests without a traceparent that is recorded, from 0 to 1. A
	// request with a traceparent is recorded if its flag "sampled" is set.
	Ratio float64
	// Version is that of the daemon.
	Version string
	// Logger reports failures to send. Default: discards.
	Logger *slog.Logger
}

// Tracer records traces. Its methods may be called concurrently.
type Tracer struct {
	options Options
	client  *http.Client
	queue   chan item
	filled  chan struct{} // has a value if the queue may be half full
	dropped atomic.Int64  // requests and calls that the queue had no room for

	mu     sync.Mutex
	active map[string]*request // requests in progress that are recorded, by Client.Trace

	closing chan struct{} // closed by Close
	hurry   context.Context
	cut     context.CancelFunc
	done    chan struct{} // closed when the sender has ended

	lastLog time.Time // of the sender
	lost    int64     // spans since lastLog
}

var _ engine.Tracer = (*Tracer)(nil)

// item is a request that has ended, or a call.
type item struct {
	request *request // nil for a call
	call    engine.Trace
}

// request is a request of a client.
type request struct {
	name       string
	client     sandbar.Client
	parent     spanID // zero for none
	begin, end time.Time

	// Guarded by Tracer.mu. worked says that the engine has recorded a call of the request;
	// outcome and failed are those of the last one.
	worked  bool
	outcome string
	failed  bool
}

// New starts a Tracer.
func New(o Options) *Tracer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{options: o, queue: make(chan item, queueLen), filled: make(chan struct{}, 1), active: map[string]*request{}, closing: make(chan struct{}), done: make(chan struct{}),
		client: &http.Client{Timeout: sendTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute}}}
	t.hurry, t.cut = context.WithCancel(context.Background())
	go t.send()
	return t
}

// Begin implements engine.Tracer. A request is sent if the engine records a call of it.
func (t *Tracer) Begin(c sandbar.Client, name, parent string) (_ sandbar.Client, end func()) {
	c.Trace = ""
	r := &request{name: name, begin: time.Now()}
	trace, from, sampled, ok := parse(parent)
	switch {
	case ok && !sampled, !ok && rand.Float64() >= t.options.Ratio:
		return c, func() {}
	case ok:
		r.parent = from
	default:
		trace = newTraceID()
	}
	c.Trace = format(trace, newSpanID())
	r.client = c
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.active) >= maxRequests {
		c.Trace = ""
		return c, func() {}
	}
	t.active[c.Trace] = r
	return c, func() { t.end(r) }
}

func (t *Tracer) end(r *request) {
	r.end = time.Now()
	t.mu.Lock()
	delete(t.active, r.client.Trace)
	worked := r.worked
	t.mu.Unlock()
	if worked {
		t.add(item{request: r})
	}
}

// Record implements engine.Tracer.
func (t *Tracer) Record(x engine.Trace) {
	t.mu.Lock()
	if r := t.active[x.Client.Trace]; r != nil && x.Call.Name != engine.StepRemoval {
		r.worked, r.outcome, r.failed = true, x.Outcome, x.Failed
	}
	t.mu.Unlock()
	t.add(item{call: x})
}

// add queues an item, or drops it if the queue is full.
func (t *Tracer) add(i item) {
	select {
	case t.queue <- i:
		if len(t.queue) >= queueLen/2 {
			select {
			case t.filled <- struct{}{}:
			default:
			}
		}
	default:
		t.dropped.Add(1)
	}
}

// Close sends what is queued, until ctx ends. Later items are not sent.
func (t *Tracer) Close(ctx context.Context) {
	close(t.closing)
	stop := context.AfterFunc(ctx, t.cut)
	defer stop()
	<-t.done
	t.cut()
	t.client.CloseIdleConnections()
}

type (
	traceID [16]byte
	spanID  [8]byte
)

func newTraceID() (id traceID) {
	copy(id[:8], bytesOf(rand.Uint64()|1)) // not zero
	copy(id[8:], bytesOf(rand.Uint64()))
	return id
}

func newSpanID() (id spanID) {
	copy(id[:], bytesOf(rand.Uint64()|1))
	return id
}

func bytesOf(n uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	return b
}

// format returns the traceparent of a recorded span (W3C Trace Context, level 1).
func format(t traceID, s spanID) string {
	b := make([]byte, 0, traceparentLen)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, s[:])
	return string(append(b, "-01"...))
}

// traceparentLen is the length of a traceparent of version 00.
const traceparentLen = 55

// parse reads a traceparent. ok is false if it is not valid; it then counts as absent.
func parse(s string) (t traceID, id spanID, sampled, ok bool) {
	if len(s) < traceparentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return t, id, false, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		text string
	}{{version[:], s[:2]}, {t[:], s[3:35]}, {id[:], s[36:52]}, {flags[:], s[53:55]}} {
		if !lowerHex(part.text) {
			return t, id, false, false
		}
		hex.Decode(part.to, []byte(part.text)) // cannot fail
	}
	switch {
	case version[0] == 0xff, t == traceID{}, id == spanID{},
		version[0] == 0 && len(s) != traceparentLen,
		len(s) > traceparentLen && s[traceparentLen] != '-': // a later version may append parts
		return t, id, false, false
	}
	return t, id, flags[0]&1 == 1, true
}

func lowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
