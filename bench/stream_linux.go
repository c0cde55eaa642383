package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
)

// streamed is the amount of output of fathomStream, in lines of lineSize bytes. messageSize is the
// size of a bulk message of Fathom.
const (
	streamed    = 512 << 20
	lineSize    = 80
	messageSize = 128 << 10
)

// fathomStream prints lines through a daemon to a client that counts bytes. The baseline is a
// WebSocket between the same client and a server that sends one buffer repeatedly.
func fathomStream(l *lab) (measured, error) {
	d, err := startDaemon(l.sandbar, "SANDBAR_LIMITS_MAX_OUTPUT=1GiB")
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}}})
	if err != nil {
		return measured{}, err
	}
	defer ws.CloseNow()
	const block = 800
	code := fmt.Sprintf("import sys\nb = (b'x' * %d + b'\\n') * %d\nfor i in range(%d): sys.stdout.buffer.write(b)\n", lineSize-1, block, streamed/lineSize/block)
	request, err := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": "stream", "language": "python", "code": code,
		"limits": map[string]any{"timeout_ms": 300_000, "memory_mb": 256, "max_output_bytes": 1 << 30}})
	if err != nil {
		return measured{}, err
	}
	var through, bare []float64
	for range 3 {
		if err := ws.Write(ctx, websocket.MessageText, request); err != nil {
			return measured{}, err
		}
		began := time.Now()
		if err := drainUntil(ctx, ws, `"type":"result"`); err != nil {
			return measured{}, err
		}
		through = append(through, streamed/1e6/time.Since(began).Seconds())
		speed, err := bareWebSocket(ctx)
		if err != nil {
			return measured{}, err
		}
		bare = append(bare, speed)
	}
	got, most := max(through[0], through[1], through[2]), max(bare[0], bare[1], bare[2])
	return measured{
		value:    fmt.Sprintf("%.0f MB/s of lines of %d bytes, %.2f × the baseline", got, lineSize, got/most),
		baseline: fmt.Sprintf("a bare WebSocket: %.0f MB/s", most),
		kept:     got >= 0.25*most,
	}, nil
}

// drainUntil reads messages up to one whose beginning contains mark; "" is the end of the
// connection.
func drainUntil(ctx context.Context, ws *websocket.Conn, mark string) error {
	ws.SetReadLimit(-1)
	for {
		_, r, err := ws.Reader(ctx)
		if err != nil {
			if mark == "" && websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				return nil
			}
			return err
		}
		var head [200]byte
		n, _ := io.ReadFull(r, head[:])
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
		if mark != "" && bytes.Contains(head[:n], []byte(mark)) {
			return nil
		}
	}
}

// bareWebSocket measures the MB/s of a WebSocket from a server without other work.
func bareWebSocket(ctx context.Context) (float64, error) {
	buf := bytes.Repeat([]byte{'x'}, messageSize)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for sent := 0; sent < streamed; sent += len(buf) {
			if ws.Write(ctx, websocket.MessageText, buf) != nil {
				return
			}
		}
		ws.Close(websocket.StatusNormalClosure, "")
	}))
	defer s.Close()
	ws, _, err := websocket.Dial(ctx, s.URL, nil)
	if err != nil {
		return 0, err
	}
	defer ws.CloseNow()
	began := time.Now()
	err = drainUntil(ctx, ws, "")
	return streamed / 1e6 / time.Since(began).Seconds(), err
}
