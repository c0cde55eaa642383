package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// message is a message of the Fathom protocol, in either direction
// (docs/protocols.md, Fathom: "Message Format").
type message struct {
	V         int    `json:"v"`
	Type      string `json:"type"`
	ID        string `json:"id,omitempty"`
	Timestamp string `json:"ts"`

	// Code is the program of an execute and the kind of an error.
	Code string `json:"code,omitempty"`

	// execute
	Language string  `json:"language,omitempty"`
	Stdin    *string `json:"stdin,omitempty"`
	Limits   *limits `json:"limits,omitempty"`

	Status   string `json:"status,omitempty"`    // status
	Data     string `json:"data,omitempty"`      // stdout, stderr
	Message  string `json:"message,omitempty"`   // error
	ExitCode *int   `json:"exit_code,omitempty"` // result
	Duration int64  `json:"duration_ms,omitempty"`
	Usage    *struct {
		PeakMemory float64 `json:"peak_memory_mb"`
		CPUTime    float64 `json:"cpu_time_ms"`
	} `json:"resource_usage,omitempty"`
}

// limits are the required and the optional limits of an execute message.
type limits struct {
	Timeout   int64 `json:"timeout_ms"`
	Memory    int64 `json:"memory_mb"`
	MaxOutput int64 `json:"max_output_bytes,omitempty"`
}

// client is one connection; several executions can run on it at once.
type client struct {
	conn *websocket.Conn

	mu     sync.Mutex
	next   int
	events map[string]chan message // by id; closed when the connection ends
	err    error
	quit   chan struct{} // closed by close
	done   chan struct{} // closed when read has returned
}

// dial connects to the server at address.
func dial(ctx context.Context, address, token string) (*client, error) {
	header := http.Header{}
	header.Set("Authorization", "Bearer "+token)
	header.Set("X-Protocol-Version", "1")
	conn, _, err := websocket.Dial(ctx, "ws://"+address+"/ws", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(16 << 20)
	c := &client{conn: conn, events: map[string]chan message{}, quit: make(chan struct{}), done: make(chan struct{})}
	go c.read()
	return c, nil
}

// read dispatches messages to their executions until the connection ends.
func (c *client) read() {
	defer close(c.done)
	for {
		_, b, err := c.conn.Read(context.Background())
		var m message
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		events := c.events[m.ID]
		c.mu.Unlock()
		if events == nil {
			continue
		}
		select {
		case events <- m:
		case <-c.quit:
		}
	}
}

func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, events := range c.events {
		close(events)
	}
	c.events = nil
}

func (c *client) close() {
	close(c.quit)
	c.conn.Close(websocket.StatusNormalClosure, "")
	<-c.done
}

func (c *client) send(ctx context.Context, m message) error {
	m.V = 1
	m.Timestamp = time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.conn.Write(ctx, websocket.MessageText, b)
}

// outcome is the result of one execution.
type outcome struct {
	Status string // the terminal status, "" if there was none
	Error  string // the code of an error message
	Reason string // the text of the error message
	Exit   *int
	Stdout string
	Stderr string
	Took   time.Duration
	Memory float64 // peak, in MB; 0 if unknown
	CPU    time.Duration
}

// execute runs one program and calls show for each of its messages, with the time since the ack.
func (c *client) execute(ctx context.Context, m message, show func(m message, since time.Duration)) (outcome, error) {
	m.Type = "execute"
	events, err := c.open(&m)
	if err != nil {
		return outcome{}, err
	}
	defer c.forget(m.ID)
	if err := c.send(ctx, m); err != nil {
		return outcome{}, err
	}
	var o outcome
	start := time.Now()
	for {
		select {
		case m, ok := <-events:
			if !ok {
				return o, fmt.Errorf("the connection ended: %w", c.err)
			}
			if m.Type == "ack" {
				start = time.Now()
			}
			if show != nil {
				show(m, time.Since(start))
			}
			if o.apply(m) {
				return o, nil
			}
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}

// open makes an id and the channel for its messages.
func (c *client) open(m *message) (<-chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		return nil, c.err
	}
	c.next++
	m.ID = "exec_" + strconv.Itoa(c.next)
	events := make(chan message, 256)
	c.events[m.ID] = events
	return events, nil
}

func (c *client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.events, id)
}

// apply adds a message and reports whether it is the last.
func (o *outcome) apply(m message) (last bool) {
	switch m.Type {
	case "stdout":
		o.Stdout += m.Data
	case "stderr":
		o.Stderr += m.Data
	case "status":
		if m.Status != "running" {
			o.Status = m.Status
		}
	case "error":
		o.Error, o.Reason = m.Code, m.Message
		// After a terminal status (output limit) a result follows.
		return o.Status == ""
	case "result":
		o.Exit = m.ExitCode
		o.Took = time.Duration(m.Duration) * time.Millisecond
		if m.Usage != nil {
			o.Memory = m.Usage.PeakMemory
			o.CPU = time.Duration(m.Usage.CPUTime * float64(time.Millisecond))
		}
		return true
	}
	return false
}
