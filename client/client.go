package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

const (
	dialTime  = 10 * time.Second
	maxAnswer = 64 << 20 // of one JSON answer, in bytes
	maxError  = 64 << 10
)

// Client makes requests to one daemon. Its methods may be called concurrently.
type Client struct {
	name    string // the address as passed to New
	base    url.URL
	token   string
	address string // to dial
	network string
	tls     *tls.Config // nil for plain HTTP
	http    http.Client

	contexts sync.Map // of RunCode: codeKey to *codeContext
}

// New makes a Client of the daemon at an address, "http://HOST:PORT", "https://HOST:PORT" or
// "unix:/path", that authenticates with a token. It does not connect yet. Invalid: an address of
// another form.
func New(address, token string) (*Client, error) {
	c := &Client{name: address, token: token, network: "tcp"}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		c.network, c.address = "unix", path
		c.base = url.URL{Scheme: "http", Host: "localhost"}
	} else if err := c.parse(address); err != nil {
		return nil, err
	}
	c.http = http.Client{
		Transport: &http.Transport{
			DialContext:    func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			// The daemon sends no compressed answers, and large buffers make transfers faster.
			DisableCompression: true,
			ReadBufferSize:     64 << 10, WriteBufferSize: 64 << 10,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func (c *Client) parse(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "url", Message: sandbar.Quote(address, 200) + " is not the address of a daemon",
			Fix: "allowed: http://HOST:PORT, https://HOST:PORT or unix:/path"}
	}
	port := u.Port()
	if u.Scheme == "https" {
		c.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	c.base = url.URL{Scheme: u.Scheme, Host: u.Host}
	c.address = net.JoinHostPort(u.Hostname(), port)
	return nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, c.network, c.address)
	if err != nil || c.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, c.tls)
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// path joins segments to a path below "/sandboxes" and escapes each.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/sandboxes")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// request makes a request. path is already escaped.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the request cannot be made: %w", err)
	}
	r.URL.RawQuery = query.Encode()
	r.Header.Set("Authorization", "Bearer "+c.token)
	return r, nil
}

// do sends a request. It returns an answer with a 2xx status, or an error.
func (c *Client) do(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(r.Context(), err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusalOf(resp)
}

// call sends body as JSON, unless it is nil, and decodes the JSON answer into answer, unless that
// is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return sandbar.Errorf(sandbar.Internal, "the request cannot be written: %w", err)
		}
		reader = bytes.NewReader(b)
	}
	r, err := c.request(ctx, method, path, query, reader)
	if err != nil {
		return err
	}
	resp, err := c.do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreachable(ctx, err)
	case len(b) > maxAnswer:
		return sandbar.Errorf(sandbar.TooLarge, "the daemon's answer is larger than %d bytes", maxAnswer)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return c.badAnswer(err)
	}
	return nil
}

// unreachable is the error if the daemon does not answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	e := sandbar.Errorf(sandbar.Unavailable, "the daemon at %s cannot be reached: %w", c.name, err)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		e = sandbar.Errorf(sandbar.Unavailable, "no daemon answers at %s: %w", c.name, op.Err)
		e.Fix = "start one with \"sandbar serve\", or set SANDBAR_URL or --url to where it is"
		if errors.Is(err, syscall.EACCES) {
			e.Fix = "run as the daemon's user: only that user may open its socket"
		}
	}
	return e
}

// badAnswer is the error for an answer that no daemon of this version sends.
func (c *Client) badAnswer(err error) error {
	e := sandbar.Errorf(sandbar.Unavailable, "the server at %s is no daemon of this version: %w", c.name, err)
	e.Fix = "check SANDBAR_URL or --url"
	return e
}

// refusalOf is the error of an answer that is not 2xx. It decodes the formats of the daemon and of
// the executors; other answers get the status as text.
func refusalOf(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // as much as there is
	var own wire.Error
	if json.Unmarshal(b, &own) == nil && own.Error.Message != "" {
		return withTokenHint(own.Err())
	}
	var executorError struct {
		Error string
		Code  sandbar.Code
	}
	if json.Unmarshal(b, &executorError) == nil && executorError.Error != "" {
		if executorError.Code == "" {
			executorError.Code = codeOf(resp.StatusCode)
		}
		return &sandbar.Error{Code: executorError.Code, Message: executorError.Error}
	}
	e := &sandbar.Error{Code: codeOf(resp.StatusCode), Message: fmt.Sprintf("the daemon answered %d (%s)", resp.StatusCode, http.StatusText(resp.StatusCode))}
	if text := strings.TrimSpace(string(b)); text != "" && !strings.ContainsAny(text, "\n<") {
		e.Message += ": " + sandbar.Quote(text, 300)
	}
	return e
}

// withTokenHint replaces the fix for a refused token: the daemon's own fix is about HTTP headers.
func withTokenHint(err error) error {
	e := *sandbar.AsError(err)
	if e.Code == sandbar.Unauthenticated {
		e.Fix = "set SANDBAR_TOKEN, or the file of --token-file, to the daemon's token or to the secret of the sandbox"
	}
	return &e
}

// codeOf returns the code of a status, for an answer without a code.
func codeOf(status int) sandbar.Code {
	switch status {
	case http.StatusUnauthorized:
		return sandbar.Unauthenticated
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return sandbar.Denied
	case http.StatusNotFound:
		return sandbar.NotFound
	case http.StatusConflict:
		return sandbar.Conflict
	case http.StatusRequestEntityTooLarge:
		return sandbar.TooLarge
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return sandbar.Unavailable
	case http.StatusGone:
		return sandbar.Gone
	}
	switch {
	case status < 400: // a redirection; the daemon sends none here
		return sandbar.Unavailable
	case status < 500:
		return sandbar.Invalid
	}
	return sandbar.Internal
}
