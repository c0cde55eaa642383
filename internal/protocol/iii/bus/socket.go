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
	// pingEvery is the interval of WebSocket pings; pongWithin bounds the peer's answer.
	pingEvery  = 20 * time.Second
	pongWithin = 60 * time.Second
	// readWithin bounds the time from a message's first frame to its last; writeWithin bounds the
	// write of a message.
	readWithin  = 60 * time.Second
	writeWithin = 60 * time.Second
	// maxPongDelay is the age of a write up to which pings are still answered. The library closes
	// the connection if a pong cannot be sent within 5 s.
	maxPongDelay = 100 * time.Millisecond
)

// maxMessage is the largest message that is read, in bytes.
const maxMessage = 64 << 20

// maxTelemetry is that of telemetry, in bytes. SDKs send batches of about 100 KiB.
const maxTelemetry = 4 << 20

// keepBuffer is the largest read buffer that is kept between messages, in bytes.
const keepBuffer = 64 << 10

// socket is one WebSocket connection: one goroutine reads, one writes, one pings. Senders wait for
// room, so the queue of a slow peer is bounded by the number of its senders.
type socket struct {
	ws     atomic.Pointer[websocket.Conn] // nil until run
	out    chan []byte
	unsent atomic.Int64  // unsent frames
	gone   chan struct{} // closed after the connection has ended
	// start of the write in progress, nil for none; monotonic clock
	writing atomic.Pointer[time.Time]
	tasks   sync.WaitGroup // writer and pinger
	once    sync.Once
}

func newSocket() *socket {
	return &socket{out: make(chan []byte, 16), gone: make(chan struct{})}
}

// onPing reports whether the library should answer a ping: during a blocked write, a pong would
// only wait behind it.
func (s *socket) onPing(context.Context, []byte) bool { return !s.stalled() }

func (s *socket) stalled() bool {
	since := s.writing.Load()
	return since != nil && time.Since(*since) > maxPongDelay
}

// run reads messages until the end of the connection and passes each to handle, which must neither
// keep it nor block.
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

// cut ends the connection without a close frame.
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
		slow.Stop() // no deadline between messages
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
			continue // the write's own deadline applies
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

// send waits for room and queues a frame. It returns false after the end of the connection.
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
