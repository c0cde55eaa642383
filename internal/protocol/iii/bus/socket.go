package bus

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Timing of sockets.
const (
	// pingEvery is the time between WebSocket pings; pongWithin is how long the
	// peer may take to answer one.
	pingEvery  = 20 * time.Second
	pongWithin = 60 * time.Second
	// readWithin is how long one message may take to arrive, from its first
	// frame to its last; writeWithin how long one may take to leave.
	readWithin  = 60 * time.Second
	writeWithin = 60 * time.Second
	// pongPatience is how long a write may have been under way for a ping still
	// to be answered: the library gives a connection up when a pong does not
	// leave within 5 s.
	pongPatience = 100 * time.Millisecond
)

// maxMessage is the largest message that is read, in bytes.
const maxMessage = 64 << 20

// maxTelemetry is the same for telemetry. SDKs send batches of some 100 KiB.
const maxTelemetry = 4 << 20

// keepBuffer is the size of read buffer that is kept between messages.
const keepBuffer = 64 << 10

// socket is one WebSocket connection: one goroutine reads, one writes, one
// pings. Whoever sends waits for room, so what waits for a slow peer is bounded
// by who sends to it.
type socket struct {
	ws      atomic.Pointer[websocket.Conn] // nil until run
	out     chan []byte
	unsent  atomic.Int64              // frames that have not left
	gone    chan struct{}             // closed when the connection has ended
	writing atomic.Pointer[time.Time] // since when a write is under way, nil for none; by a clock that does not jump
	tasks   sync.WaitGroup            // writer and pinger
	once    sync.Once
}

func newSocket() *socket {
	return &socket{out: make(chan []byte, 16), gone: make(chan struct{})}
}

// onPing reports whether the library shall answer a ping: while a write is
// stuck a pong could only wait behind it.
func (s *socket) onPing(context.Context, []byte) bool { return !s.stalled() }

func (s *socket) stalled() bool {
	since := s.writing.Load()
	return since != nil && time.Since(*since) > pongPatience
}

// run reads messages until the connection's end, and hands each to handle,
// which must not keep it and should not block.
func (s *socket) run(ctx context.Context, ws *websocket.Conn, handle func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	s.ws.Store(ws)
	ws.SetReadLimit(maxMessage)
	s.tasks.Go(func() { s.write(ctx, ws) })
	s.tasks.Go(func() { s.keepAlive(ctx, ws) })
	err := s.read(ctx, ws, handle)
	cancel()
	s.end()
	ws.CloseNow()
	s.tasks.Wait()
	return err
}

// cut ends the connection without a word.
func (s *socket) cut() {
	s.end()
	if ws := s.ws.Load(); ws != nil {
		ws.CloseNow()
	}
}

func (s *socket) end() { s.once.Do(func() { close(s.gone) }) }

func (s *socket) read(ctx context.Context, ws *websocket.Conn, handle func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(readWithin, cancel)
	defer slow.Stop()
	var buf bytes.Buffer
	for {
		slow.Stop() // between messages a peer may take its time
		_, r, err := ws.Reader(ctx)
		if err != nil {
			return err
		}
		slow.Reset(readWithin)
		buf.Reset()
		if _, err := buf.ReadFrom(r); err != nil {
			return err
		}
		handle(buf.Bytes())
		if buf.Cap() > keepBuffer {
			buf = bytes.Buffer{}
		}
	}
}

func (s *socket) write(ctx context.Context, ws *websocket.Conn) {
	defer s.end()
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-s.out:
			now := time.Now()
			s.writing.Store(&now)
			limited, cancel := context.WithTimeout(ctx, writeWithin)
			err := ws.Write(limited, websocket.MessageText, b)
			cancel()
			s.writing.Store(nil)
			s.unsent.Add(-1)
			if err != nil {
				ws.CloseNow()
				return
			}
		}
	}
}

func (s *socket) keepAlive(ctx context.Context, ws *websocket.Conn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.stalled() {
			continue // the write's own limit decides
		}
		limited, cancel := context.WithTimeout(ctx, pongWithin)
		err := ws.Ping(limited)
		cancel()
		if err != nil {
			ws.CloseNow()
			return
		}
	}
}

// send waits for room and hands a frame to the writer; false when the
// connection has ended.
func (s *socket) send(b []byte) bool {
	select {
	case <-s.gone:
		return false // even if there is room
	default:
	}
	s.unsent.Add(1)
	select {
	case s.out <- b:
		return true
	case <-s.gone:
		return false
	}
}

// post encodes and sends a message.
func (s *socket) post(m *message) bool {
	b, err := encode(m)
	return err == nil && s.send(b)
}
