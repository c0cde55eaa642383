package fathom

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
)

// Options are the parameters of a Client. New replaces zero fields with the defaults given here.
type Options struct {
	// URL is the server's address: ws, wss, http or https. Without a path the path is "/ws".
	URL string
	// Token authenticates the client. Default: none.
	Token string
	// MaxPending is the most executions at once; further ones wait. Default 256, which is the limit
	// of the daemon for one connection.
	MaxPending int
	// MaxMessage is the most bytes of one message of the server. Default 4 MiB; the daemon's are
	// below 1 MiB.
	MaxMessage int64
	// PingInterval is the time between two pings of the connection. A server that does not answer one
	// before the next is due has lost its connection. Default 15 s.
	PingInterval time.Duration
	// Backoff is the pause before the second attempt to reconnect. It doubles with each further one,
	// up to MaxBackoff. Defaults 200 ms and 30 s.
	Backoff, MaxBackoff time.Duration
	// GiveUp is the longest time that a call waits for a connection. Default 60 s.
	GiveUp time.Duration
	// CancelWait is the time that a cancelled execution has for its last message. Default 10 s.
	CancelWait time.Duration
	// HTTP is the client of the upgrade. Default: one that uses no proxy and follows no redirection.
	HTTP *http.Client
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Client is a client of one server. Its methods may be called concurrently.
type Client struct {
	options Options
	url     string
	slots   chan struct{} // has an element for each pending execution

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // the goroutines that connect and read

	mu         sync.Mutex
	conn       *conn         // nil: there is none
	connecting bool          // a goroutine connects
	changed    chan struct{} // closed at the next change of conn or refusal
	refusal    error         // the last attempt was refused for good
	short      int           // number of connections in sequence that were lost at once
}

// New makes a Client. It does not connect yet. INVALID_REQUEST: the URL has another form.
func New(o Options) (*Client, error) {
	setDefault(&o.MaxPending, 256)
	setDefault(&o.MaxMessage, 4<<20)
	setDefault(&o.PingInterval, 15*time.Second)
	setDefault(&o.Backoff, 200*time.Millisecond)
	setDefault(&o.MaxBackoff, 30*time.Second)
	setDefault(&o.GiveUp, time.Minute)
	setDefault(&o.CancelWait, 10*time.Second)
	setDefault(&o.HTTP, &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, wrong("the address is not a URL with a host (allowed: ws://HOST:PORT, wss://HOST:PORT, and the same with http and https)")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return nil, wrong("the scheme of the address is none of ws, wss, http and https")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = wire.Path
	}
	c := &Client{options: o, url: u.String(), slots: make(chan struct{}, o.MaxPending), changed: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the connection. Pending executions return a NETWORK_ERROR, and the server cancels
// their programs after its grace period.
func (c *Client) Close() error {
	c.stop()
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.close()
	}
	c.work.Wait()
	return nil
}

// Request is a program to run.
type Request struct {
	ID       string // 1 to 256 bytes; must not be pending. Default: a random one
	Language string // such as "python"
	Code     string
	Stdin    string
	Env      map[string]string
	// Timeout is the time limit of the program, in whole milliseconds. Default 30 s.
	Timeout time.Duration
	// MemoryMB is the memory limit in units of 1048576 bytes. Default 256.
	MemoryMB int64
	// CPUShares is the weight. Default: the server's.
	CPUShares int64
	// MaxOutput is the most bytes of both outputs. Default 1 MiB.
	MaxOutput int64
	// Retries is how many times the program is run again after a Retryable error. Default 0: a program
	// whose connection was lost may have run, and had effects outside of its sandbox.
	Retries int
}

// check refuses what a message cannot carry. The server answers it without an id.
func (r Request) check() error {
	if len(r.ID) > 256 {
		return wrong("the id has more than 256 bytes")
	}
	texts := []string{r.ID, r.Language, r.Code, r.Stdin}
	for name, value := range r.Env {
		texts = append(texts, name, value)
	}
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return wrong("the request has text that is not UTF-8; write binary data in a text form, such as base64")
		}
	}
	return nil
}

// executeMessage is the message of a Request.
type executeMessage struct {
	V        int               `json:"v"`
	Type     string            `json:"type"`
	ID       string            `json:"id"`
	TS       string            `json:"ts"`
	Language string            `json:"language"`
	Code     string            `json:"code"`
	Stdin    *string           `json:"stdin,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Limits   struct {
		Timeout   int64 `json:"timeout_ms"`
		Memory    int64 `json:"memory_mb"`
		CPUShares int64 `json:"cpu_shares,omitempty"`
		Output    int64 `json:"max_output_bytes"`
	} `json:"limits"`
}

// shortMessage is a cancel or a ping.
type shortMessage struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
	TS   string `json:"ts"`
}

// timestamp is the present, as messages have it.
func timestamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// Execute runs a program and returns its end. It calls fn, unless that is nil, with each message of
// the execution, in order. The end of ctx, or an error of fn, cancels the program.
//
// An error is an *Error, the error of fn, or that of ctx; the Result then has what had arrived. Any
// end of the program, such as a timeout, is a Result without an error, except OUTPUT_LIMIT.
func (c *Client) Execute(ctx context.Context, r Request, fn func(Message) error) (Result, error) {
	pause := c.options.Backoff
	for attempt := 0; ; attempt++ {
		result, err := c.once(ctx, r, fn)
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.Retryable || attempt >= r.Retries || ctx.Err() != nil || c.ctx.Err() != nil {
			return result, err
		}
		select { // a server that is overloaded, or a connection that has just been lost
		case <-time.After(pause):
		case <-ctx.Done():
			return result, err
		}
		pause = min(2*pause, c.options.MaxBackoff)
	}
}

// once runs a program once.
func (c *Client) once(ctx context.Context, r Request, fn func(Message) error) (Result, error) {
	setDefault(&r.ID, "exec_"+rand.Text())
	setDefault(&r.Timeout, 30*time.Second)
	setDefault(&r.MemoryMB, 256)
	setDefault(&r.MaxOutput, 1<<20)
	if err := r.check(); err != nil {
		return Result{ID: r.ID}, err
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return Result{ID: r.ID}, ctx.Err()
	}
	defer func() { <-c.slots }()
	m := executeMessage{V: wire.Version, Type: wire.Execute, ID: r.ID, TS: timestamp(), Language: r.Language, Code: r.Code, Env: r.Env}
	if r.Stdin != "" {
		m.Stdin = &r.Stdin
	}
	m.Limits.Timeout, m.Limits.Memory, m.Limits.CPUShares, m.Limits.Output = r.Timeout.Milliseconds(), r.MemoryMB, r.CPUShares, r.MaxOutput
	text, err := json.Marshal(m)
	if err != nil {
		return Result{ID: r.ID}, wrong("the request cannot be encoded: " + err.Error())
	}
	conn, err := c.connected(ctx)
	if err != nil {
		return Result{ID: r.ID}, err
	}
	x, err := conn.begin(r.ID, r.MaxOutput, text)
	if err != nil {
		return Result{ID: r.ID}, err
	}
	defer conn.forget(x)
	return c.follow(ctx, conn, x, fn)
}

// follow collects the messages of an execution until its end.
func (c *Client) follow(ctx context.Context, conn *conn, x *execution, fn func(Message) error) (Result, error) {
	a := NewAccumulator(x.id)
	var why error // the reason of a cancellation
	var late <-chan time.Time
	cancel := func(err error) {
		if why != nil {
			return
		}
		why = err
		late = time.After(c.options.CancelWait)
		text, _ := json.Marshal(shortMessage{V: wire.Version, Type: wire.Cancel, ID: x.id, TS: timestamp()})
		conn.send(text)
	}
	stopped := ctx.Done()
	for {
		all, err := x.take()
		for _, m := range all {
			a.Apply(m)
			if fn != nil && why == nil {
				if err := fn(m); err != nil {
					cancel(err)
				}
			}
		}
		r, failed := a.Result()
		switch {
		case a.Done() && why != nil:
			return r, why
		case a.Done():
			return r, failed
		case errors.Is(err, errTooMuch):
			cancel(&Error{Code: wire.CodeOutputLimit, Message: "the server sent more output than max_output_bytes"})
		case err != nil && why != nil:
			return r, why
		case err != nil:
			return r, err
		}
		select {
		case <-x.more:
		case <-stopped:
			stopped = nil
			cancel(ctx.Err())
		case <-late:
			return r, why
		}
	}
}

// Ping asks the server for its load.
func (c *Client) Ping(ctx context.Context) (Load, error) {
	conn, err := c.connected(ctx)
	if err != nil {
		return Load{}, err
	}
	pong := conn.expectPong()
	text, err := json.Marshal(shortMessage{V: wire.Version, Type: wire.Ping, TS: timestamp()})
	if err != nil {
		return Load{}, err
	}
	if err := conn.send(text); err != nil {
		return Load{}, err
	}
	select {
	case m := <-pong:
		if m.Load == nil {
			return Load{}, nil
		}
		return *m.Load, nil
	case <-conn.gone:
		return Load{}, conn.reason()
	case <-ctx.Done():
		return Load{}, ctx.Err()
	}
}
