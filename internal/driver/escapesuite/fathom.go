package escapesuite

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// conn is a client of the Fathom protocol.
type conn struct {
	ws *websocket.Conn
}

// message is a message of the daemon.
type message struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Status   string `json:"status"`
	Data     string `json:"data"`
	Code     string `json:"code"`
	ExitCode *int   `json:"exit_code"`
}

// dial connects with the token.
func (d *daemon) dial(ctx context.Context) (*conn, error) {
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(d.base, "http")+"/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + d.token}}})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	ws.SetReadLimit(64 << 20)
	return &conn{ws}, nil
}

// execution is an execute message.
type execution struct {
	ID, Language, Code string
	Timeout            time.Duration
	Output             int64
	Env                map[string]string
}

func (e execution) text() string {
	limits := map[string]any{"timeout_ms": e.Timeout.Milliseconds(), "memory_mb": 128}
	if e.Output > 0 {
		limits["max_output_bytes"] = e.Output
	}
	b, _ := json.Marshal(map[string]any{"v": 1, "type": "execute", "id": e.ID, "ts": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		"language": e.Language, "code": e.Code, "limits": limits, "env": e.Env})
	return string(b)
}

func (c *conn) send(ctx context.Context, text string) error {
	return c.ws.Write(ctx, websocket.MessageText, []byte(text))
}

// next reads one message. A malformed frame is an escape, because the daemon sends none.
func (c *conn) next(ctx context.Context) (message, error) {
	_, b, err := c.ws.Read(ctx)
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return m, escaped("a malformed frame: %.200q", b)
	}
	return m, nil
}

// outcome has the messages of one execution.
type outcome struct {
	output strings.Builder // both streams
	status string          // of the last status message
	code   string          // of the error message; "": none
	exit   *int
}

// add adds a message and reports whether it is the last of the execution.
func (o *outcome) add(m message) bool {
	switch m.Type {
	case "stdout", "stderr":
		o.output.WriteString(m.Data)
	case "status":
		o.status = m.Status
	case "result":
		o.exit = m.ExitCode
		return true
	case "error":
		o.code = m.Code
		return m.Code != "OUTPUT_LIMIT" // the result follows
	}
	return false
}

// run executes e and returns its outcome after its last message.
func (c *conn) run(ctx context.Context, e execution) (*outcome, error) {
	if err := c.send(ctx, e.text()); err != nil {
		return nil, err
	}
	o := &outcome{}
	for {
		m, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if m.ID == e.ID && o.add(m) {
			return o, nil
		}
	}
}

// shell executes e on a new connection. Defaults: the language shell and a timeout of 20 s.
func (d *daemon) shell(ctx context.Context, e execution) (*outcome, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.ws.CloseNow()
	if e.Language == "" {
		e.Language = "shell"
	}
	if e.ID == "" {
		e.ID = "exec_1"
	}
	if e.Timeout == 0 {
		e.Timeout = 20 * time.Second
	}
	return c.run(ctx, e)
}
