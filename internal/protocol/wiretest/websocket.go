package wiretest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// WebSocket dials url with the given request headers. Its events are:
//
//	@binary HEX        client and server: a binary message
//	@text HEX          client: a text message of these bytes, for what is not UTF-8
//	                   or has line breaks
//	@close CODE REASON client: close, and wait until the server has closed
//	@vanish            client: cut the connection without a close frame
//	@closed CODE       server: the server has closed with this status
//	@lost              server: the connection has ended without a close frame
func WebSocket(url string, header http.Header) Dial {
	return func(ctx context.Context) (Conn, error) {
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			return nil, err
		}
		c.SetReadLimit(-1)
		return &wsConn{c: c}, nil
	}
}

type wsConn struct {
	c     *websocket.Conn
	ended bool // the end has been reported
}

func (w *wsConn) Send(ctx context.Context, line string) error {
	if !strings.HasPrefix(line, "@") {
		return w.c.Write(ctx, websocket.MessageText, []byte(line))
	}
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "@binary", "@text":
		kind := websocket.MessageBinary
		if verb == "@text" {
			kind = websocket.MessageText
		}
		b, err := hex.DecodeString(arg)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		return w.c.Write(ctx, kind, b)
	case "@close":
		code, reason, _ := strings.Cut(arg, " ")
		n, err := strconv.Atoi(code)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		w.ended = true
		return w.c.Close(websocket.StatusCode(n), reason)
	case "@vanish":
		w.ended = true
		return w.c.CloseNow()
	}
	return fmt.Errorf("%s is not something that a WebSocket can do", line)
}

func (w *wsConn) Receive(ctx context.Context) (string, error) {
	kind, b, err := w.c.Read(ctx)
	var closed websocket.CloseError
	switch {
	case err == nil && kind == websocket.MessageBinary:
		return "@binary " + hex.EncodeToString(b), nil
	case err == nil:
		return string(b), nil
	case w.ended || ctx.Err() != nil:
		return "", err
	case errors.As(err, &closed):
		w.ended = true
		return "@closed " + strconv.Itoa(int(closed.Code)), nil
	}
	w.ended = true
	return "@lost", nil
}

func (w *wsConn) Close() error { return w.c.CloseNow() }
