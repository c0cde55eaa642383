package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	mcpPath          = "/mcp"
	mcpSession       = "Mcp-Session-Id"
	mcpVersion       = "Mcp-Protocol-Version"
	mcpKeepalive     = 30 * time.Second // between requests that keep a session from being idle
	mcpKeepaliveID   = "sandbar-keepalive"
	mcpEnd           = 10 * time.Second // to end a session
	maxMCPLine       = 16 << 20         // of a message of the client, in bytes
	maxMCPInProgress = 64               // requests; further ones wait
)

// ServeMCP connects a client of the Model Context Protocol with the daemon's /mcp. The client
// speaks it over a pair of streams, with a message on each line. ServeMCP returns when in has ended
// and all requests are answered, or when ctx ends; the session has then ended. A read of in may
// still be in progress. An error is a broken stream, or that of the daemon if no session began.
func (c *Client) ServeMCP(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &bridge{client: c, out: out, cancel: cancel}
	defer b.end()
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { failed <- readLines(ctx, in, lines) }()
	alive := time.NewTicker(mcpKeepalive)
	defer alive.Stop()
	places := make(chan struct{}, maxMCPInProgress)
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-alive.C:
			if b.began() {
				working.Go(func() {
					b.send(ctx, []byte(`{"jsonrpc":"2.0","id":"`+mcpKeepaliveID+`","method":"ping"}`), message{})
				})
			}
		case line := <-lines:
			var m message
			json.Unmarshal(line, &m) // the daemon answers what is no message
			switch {
			case !b.began(): // until the first answer there is no session
				if err := b.send(ctx, line, m); err != nil && !b.began() {
					return err
				}
			case len(m.ID) == 0: // a notification has no answer, and what follows may rely on it
				b.send(ctx, line, m)
			default:
				places <- struct{}{}
				working.Go(func() {
					defer func() { <-places }()
					b.send(ctx, line, m)
				})
			}
		}
	}
}

// readLines sends the lines of r until its end. Empty lines are left out.
func readLines(ctx context.Context, r io.Reader, lines chan<- []byte) error {
	all := &events{bufio.NewReaderSize(r, 64<<10)}
	for {
		line, err := all.line(maxMCPLine)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return sandbar.Errorf(sandbar.Invalid, "the input cannot be read: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		select {
		case lines <- bytes.Clone(line):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bridge is one session.
type bridge struct {
	client *Client
	cancel context.CancelCauseFunc

	writing sync.Mutex
	out     io.Writer

	mu               sync.Mutex
	session, version string
}

func (b *bridge) began() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session != ""
}

// message is the part of a message that the bridge reads.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
}

// send sends one message of the client and writes the daemon's messages that answer it. A request
// that fails is answered with the error, too.
func (b *bridge) send(ctx context.Context, line []byte, m message) error {
	err := b.exchange(ctx, line, m)
	if err != nil && len(m.ID) > 0 && m.Method != "" && ctx.Err() == nil {
		e := sandbar.AsError(err)
		text, _ := json.Marshal(string(e.Code) + ": " + e.Error()) // a string can be encoded
		b.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%s}}`, m.ID, text))
	}
	return err
}

func (b *bridge) exchange(ctx context.Context, line []byte, m message) error {
	r, err := b.client.request(ctx, http.MethodPost, mcpPath, nil, bytes.NewReader(line))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	b.sign(r)
	resp, err := b.client.http.Do(r)
	if err != nil {
		return b.client.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= 300 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // as much as there is
		var answer message
		if json.Unmarshal(body, &answer) == nil && answer.JSONRPC != "" {
			b.take(resp, m, body)
			return nil
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return refusalOf(resp)
	}
	switch kind {
	case "text/event-stream":
		for all := newEvents(resp.Body); ; {
			e, err := all.next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return b.client.unreachable(ctx, err)
			}
			b.take(resp, m, e.data)
		}
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return b.client.unreachable(ctx, err)
		}
		b.take(resp, m, body)
	}
	return nil
}

// sign adds the session to a request.
func (b *bridge) sign(r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != "" {
		r.Header.Set(mcpSession, b.session)
	}
	if b.version != "" {
		r.Header.Set(mcpVersion, b.version)
	}
}

// take writes a message of the daemon. That of a successful "initialize" begins the session.
func (b *bridge) take(resp *http.Response, request message, data []byte) {
	var m message
	if len(data) == 0 || json.Unmarshal(data, &m) != nil || string(m.ID) == `"`+mcpKeepaliveID+`"` {
		return
	}
	if request.Method == "initialize" && m.Result.ProtocolVersion != "" {
		b.mu.Lock()
		b.session, b.version = resp.Header.Get(mcpSession), m.Result.ProtocolVersion
		b.mu.Unlock()
	}
	b.write(data)
}

// write writes one message as a line.
func (b *bridge) write(data []byte) {
	var line bytes.Buffer
	if json.Compact(&line, data) != nil { // no line break
		return
	}
	line.WriteByte('\n')
	b.writing.Lock()
	defer b.writing.Unlock()
	if _, err := b.out.Write(line.Bytes()); err != nil {
		b.cancel(sandbar.Errorf(sandbar.Unavailable, "the output cannot be written: %w", err))
	}
}

// end ends the session.
func (b *bridge) end() {
	if !b.began() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mcpEnd)
	defer cancel()
	r, err := b.client.request(ctx, http.MethodDelete, mcpPath, nil, nil)
	if err != nil {
		return
	}
	b.sign(r)
	if resp, err := b.client.http.Do(r); err == nil { // otherwise the session ends when it is idle
		resp.Body.Close()
	}
}
