package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Remote opens ends of channels at another process's server, by dialling it. Its methods may be
// called concurrently.
type Remote struct {
	url    string
	create func(ctx context.Context) (reader, writer Ref, err error)
	opt    Options

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	pumps  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	waiting []*pump // oldest first
	held    int64
}

// pump is a source that is being sent to a server.
type pump struct {
	cancel context.CancelFunc
	held   int64
}

// NewRemote returns a Remote for the server at url, such as ws://host:49134. create requests a
// channel from that server. Of o, Max is the most sources in progress, MaxHeld bounds their memory,
// and TTL and WriteTimeout are as in a Hub. Close ends it.
func NewRemote(url string, create func(ctx context.Context) (reader, writer Ref, err error), o Options) *Remote {
	r := &Remote{url: strings.TrimRight(url, "/"), create: create, opt: o.withDefaults()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// dial opens an end.
func (r *Remote) dial(ctx context.Context, ref Ref, d Direction) (*websocket.Conn, error) {
	at := r.url + Path + url.PathEscape(ref.ChannelID) + "?key=" + url.QueryEscape(ref.AccessKey) + "&dir=" + string(d)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, at, &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		if resp != nil && resp.StatusCode == 404 {
			return nil, ErrUnknown
		}
		// The library's error contains the URL and with it the key.
		return nil, fmt.Errorf("the channel could not be opened at the engine: %w", errDial)
	}
	ws.SetReadLimit(maxMessage)
	return ws, nil
}

var errDial = errors.New("the connection failed")

// Reader implements Ends.
func (r *Remote) Reader(ctx context.Context, ref Ref) (Reader, error) {
	ws, err := r.dial(ctx, ref, Read)
	if err != nil {
		return nil, err
	}
	rd := &remoteReader{q: newQueue(DefaultBuffer), ws: ws}
	ctx, cancel := context.WithCancel(r.ctx)
	rd.cancel = cancel
	rd.reading.Go(func() {
		// In a goroutine of its own: ending ctx in a read would end the connection, but Next must
		// be able to stop waiting.
		err := receive(ctx, ws, func(m message) error { return rd.q.put(ctx, m) })
		switch websocket.CloseStatus(err) {
		case websocket.StatusNormalClosure, websocket.StatusNoStatusRcvd:
			rd.q.finish(io.EOF)
		default: // broken, or the Hub reports that the writer's connection was
			rd.q.finish(ErrAborted)
		}
	})
	return rd, nil
}

// remoteReader is a reading end over a socket.
type remoteReader struct {
	q       *queue
	ws      *websocket.Conn
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

// Next implements Reader.
func (r *remoteReader) Next(ctx context.Context) ([]byte, error) {
	return (&queueReader{q: r.q}).Next(ctx)
}

// Close implements Reader.
func (r *remoteReader) Close() error {
	r.q.leave()
	r.cancel()
	r.reading.Wait()
	r.ws.CloseNow()
	return nil
}

// Offer implements Ends. It sends the source at once, as far as the server's queue and the reader
// accept it. If there are too many unread sources, the oldest is dropped.
func (r *Remote) Offer(ctx context.Context, src io.ReadCloser, held int64) (Ref, error) {
	reader, writer, err := r.create(ctx)
	if err != nil {
		src.Close()
		return Ref{}, err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	p := &pump{cancel, held}
	if !r.enter(p) {
		cancel()
		src.Close()
		return Ref{}, ErrClosed
	}
	go func() {
		defer r.leave(p)
		defer src.Close()
		r.send(ctx, writer, src)
	}()
	return reader, nil
}

func (r *Remote) enter(p *pump) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	for len(r.waiting) > 0 && (len(r.waiting) >= r.opt.Max || r.held+p.held > r.opt.MaxHeld) {
		r.remove(r.waiting[0])
	}
	r.waiting = append(r.waiting, p)
	r.held += p.held
	r.pumps.Add(1)
	return true
}

// remove cancels a pump and stops counting it. The caller holds mu.
func (r *Remote) remove(p *pump) {
	p.cancel()
	for i, q := range r.waiting {
		if p == q {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			r.held -= p.held
			return
		}
	}
}

func (r *Remote) leave(p *pump) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p)
	r.pumps.Done()
}

// send writes a source to a channel. It connects even for an empty one, because the reader would
// otherwise wait until the channel expires.
func (r *Remote) send(ctx context.Context, ref Ref, src io.Reader) {
	ws, err := r.dial(ctx, ref, Write)
	if err != nil {
		r.opt.Logger.Warn("iii: a channel could not be written", "reason", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() { // handles the server's close frame and pings
		defer close(watched)
		defer cancel()
		_ = receive(ctx, ws, func(message) error { return nil })
	}()
	switch err := sendSource(ctx, ws, src, r.opt.TTL+r.opt.WriteTimeout); {
	case errors.Is(err, io.EOF), errors.Is(err, ErrAborted):
		// A side message has reported the error; the stream ends early.
		ws.Close(websocket.StatusNormalClosure, "stream_complete")
	default:
		ws.CloseNow()
	}
	cancel()
	<-watched
}

// Close drops all sources in progress and waits for their end.
func (r *Remote) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.pumps.Wait()
}
