package e2b

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Bounds of calls to the service.
const (
	// callBound bounds an attempt of a call, createBound that of a creation.
	callBound   = 20 * time.Second
	createBound = 2 * time.Minute
	// uploadBound bounds an attempt of an upload of the agent.
	uploadBound = 2 * time.Minute
	// attempts is the most attempts of a call that may be repeated.
	attempts = 4
	// firstPause is the first pause between attempts, if the service names none. It doubles.
	firstPause = 100 * time.Millisecond
	// maxPause is the longest pause that is waited for.
	maxPause = 30 * time.Second
	// maxAnswer bounds the body of an answer, in bytes.
	maxAnswer = 8 << 20
	// maxText is the longest part of a message of the service in an error, in bytes.
	maxText = 300
)

// service is an E2B service. Its errors are *sandbar.Error and do not contain the key.
type service struct {
	options
	http    *http.Client
	silence time.Duration // maxSilence, except in tests
}

func newService(o options) *service {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &service{options: o, silence: maxSilence, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		// a redirect would carry keys and tokens to another host
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// idle closes connections that no request uses.
func (s *service) idle() { s.http.CloseIdleConnections() }

// request is a request to the service or into a sandbox.
type request struct {
	what   string // for errors: "creating a sandbox"
	method string
	url    string
	header http.Header
	body   []byte
	bound  time.Duration // of an attempt
	// again: the request changes nothing, or nothing more if it is repeated.
	again bool
	// next, if set, receives the token of the next page.
	next *string
	// lost, if set, receives whether the request may have been served although it failed.
	lost *bool
}

// do sends a request, and repeats it if nothing has run. It returns the body of an answer with a
// status of 200 to 299.
func (s *service) do(ctx context.Context, q request) ([]byte, error) {
	pause := firstPause
	for n := 1; ; n++ {
		b, err := s.attempt(ctx, q)
		if err == nil {
			return b, nil
		}
		if q.lost != nil {
			*q.lost = err.lost && !err.refused
		}
		wait, retry := err.pause, err.refused || q.again && err.lost
		if wait == 0 {
			wait, pause = pause, 2*pause
		}
		end, bounded := ctx.Deadline()
		if !retry || n == attempts || wait > maxPause || ctx.Err() != nil || bounded && time.Until(end) <= wait {
			return nil, err.Error
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "%s: %w", q.what, ctx.Err())
		}
	}
}

// failure is the failure of an attempt.
type failure struct {
	*sandbar.Error
	refused bool          // the service has not begun to serve the request
	lost    bool          // no answer, or that of a gateway
	pause   time.Duration // that the service asks for; 0: none
}

// attempt sends a request once.
func (s *service) attempt(ctx context.Context, q request) ([]byte, *failure) {
	bounded, cancel := context.WithTimeout(ctx, q.bound)
	defer cancel()
	resp, failed := s.send(ctx, bounded, q)
	if failed != nil {
		return nil, failed
	}
	defer resp.Body.Close()
	if q.next != nil {
		*q.next = resp.Header.Get("X-Next-Token")
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, s.broken(ctx, q, err)
	}
	if len(b) > maxAnswer {
		return nil, &failure{Error: sandbar.Errorf(sandbar.Internal, "%s: the answer of %s is larger than %d bytes", q.what, s.at(q), maxAnswer)}
	}
	return b, nil
}

// send sends a request once and returns an answer with a status of 200 to 299, whose body the
// caller must close. caller is the context without the bound of the attempt.
func (s *service) send(caller, ctx context.Context, q request) (*http.Response, *failure) {
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, bytes.NewReader(q.body))
	if err != nil {
		return nil, &failure{Error: sandbar.Errorf(sandbar.Internal, "%s: the URL of the service is malformed", q.what)}
	}
	r.Header = q.header
	r.Header.Set("User-Agent", "sandbar")
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, s.broken(caller, q, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status suffices
	return nil, s.refusal(q, resp, b)
}

// refusal converts an answer that is an error.
func (s *service) refusal(q request, resp *http.Response, body []byte) *failure {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Message = string(body)
	}
	e := &sandbar.Error{Message: q.what + ": " + s.at(q) + " answers " + strconv.Itoa(resp.StatusCode)}
	if text := strings.TrimSpace(strings.ReplaceAll(said.Message, s.key, "…")); text != "" {
		e.Message += ": " + sandbar.Quote(text, maxText)
	}
	f := &failure{Error: e}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		e.Code, e.Fix = sandbar.Exhausted, "try again later, or raise the limits of the account"
		f.refused = true
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n >= 0 {
			f.pause = max(time.Duration(min(n, 86400))*time.Second, firstPause)
			e.RetryAfter = f.pause
		}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Code, e.Fix = sandbar.Unavailable, "check E2B_API_KEY, and that it is a key of this service"
	case code == http.StatusNotFound:
		e.Code = sandbar.NotFound
	case code == http.StatusConflict:
		e.Code = sandbar.Conflict
	case code == http.StatusInsufficientStorage:
		e.Code = sandbar.NoSpace
	case code >= 500 && code != http.StatusNotImplemented:
		e.Code, e.Fix = sandbar.Unavailable, "try again later"
		f.lost = true
	case code >= 300 && code < 400:
		e.Code, e.Fix = sandbar.Unavailable, "set E2B_API_URL and E2B_SANDBOX_URL to the URLs that the service itself has: redirects are not followed"
	default:
		e.Code = sandbar.Unsupported
	}
	return f
}

// broken converts the error of a request that has no complete answer.
func (s *service) broken(caller context.Context, q request, err error) *failure {
	if caller.Err() != nil {
		return &failure{Error: sandbar.Errorf(sandbar.CodeOfContext(caller), "%s: %w", q.what, caller.Err())}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text has the URL
	}
	e := &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: q.what + ": " + s.at(q) + " cannot be reached", Fix: "check the network, E2B_API_URL, E2B_SANDBOX_URL and E2B_DOMAIN"}
	f := &failure{Error: e, lost: true}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		f.refused = true
	}
	if isTLS(err) {
		f.lost, f.refused = false, false // the next attempt would fail, too
		e.Message = q.what + ": there is no secure connection to " + s.at(q)
		e.Fix = "check the certificate of the service; SSL_CERT_FILE names further authorities"
	} else if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		e.Message = q.what + ": " + s.at(q) + " does not answer"
	}
	return f
}

// isTLS reports whether a connection failed because of its encryption.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, alert := errors.AsType[tls.AlertError](err)
	return alert || strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "gave HTTP response to HTTPS client")
}

// at names the service in errors.
func (s *service) at(q request) string {
	u, err := url.Parse(q.url)
	if err != nil {
		return "the service"
	}
	return "the E2B service at " + sandbar.Quote(u.Host, 100)
}

// plane makes a call to the control plane. in and out may be nil.
func (s *service) plane(ctx context.Context, q request, path string, in, out any) error {
	q.url, q.header = s.api.String()+path, http.Header{"X-Api-Key": {s.key}}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return sandbar.Errorf(sandbar.Internal, "%s: %w", q.what, err)
		}
		q.body = b
		q.header.Set("Content-Type", "application/json")
	}
	if q.bound == 0 {
		q.bound = callBound
	}
	b, err := s.do(ctx, q)
	if err == nil && out != nil && json.Unmarshal(b, out) != nil {
		if q.lost != nil {
			*q.lost = true
		}
		err = sandbar.Errorf(sandbar.Unavailable, "%s: the answer of %s is not that of an E2B service", q.what, s.at(q))
	}
	return err
}

// The messages of the control plane.
type (
	newSandbox struct {
		Template string            `json:"templateID"`
		Timeout  int64             `json:"timeout"` // seconds
		Metadata map[string]string `json:"metadata"`
		Secure   bool              `json:"secure"`
		Internet bool              `json:"allow_internet_access"`
		Network  networkOptions    `json:"network"`
	}
	networkOptions struct {
		Public bool `json:"allowPublicTraffic"`
	}
	created struct {
		ID      string `json:"sandboxID"`
		Domain  string `json:"domain"`
		Token   string `json:"envdAccessToken"`
		Traffic string `json:"trafficAccessToken"`
	}
	listed struct {
		ID       string            `json:"sandboxID"`
		Metadata map[string]string `json:"metadata"`
	}
)

// create creates a sandbox. lost: there may be one although it failed.
func (s *service) create(ctx context.Context, n newSandbox) (b *box, lost bool, err error) {
	var c created
	q := request{what: "creating a sandbox", method: http.MethodPost, bound: createBound, lost: &lost}
	if err := s.plane(ctx, q, "/sandboxes", n, &c); err != nil {
		return nil, lost, err
	}
	if !isID(c.ID) || c.Domain != "" && !isHost(c.Domain) {
		return nil, true, sandbar.Errorf(sandbar.Unavailable, "creating a sandbox: the service answers with a malformed id or domain")
	}
	return &box{service: s, id: c.ID, token: c.Token, traffic: c.Traffic, base: s.baseOf(c)}, false, nil
}

// isID reports whether a sandbox's id can be a part of a path and of a host name.
func isID(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// baseOf returns the URL of envd of a sandbox, by the rules of E2B's own clients.
func (s *service) baseOf(c created) string {
	if s.sandbox != nil {
		return s.sandbox.String()
	}
	domain := s.domain
	if c.Domain != "" {
		domain = c.Domain
	}
	switch domain {
	case "e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev":
		return "https://sandbox." + domain
	}
	return "https://" + envdPort + "-" + c.ID + "." + domain
}

// kill ends a sandbox. It is no error if there is none with this id.
func (s *service) kill(ctx context.Context, id string) error {
	err := s.plane(ctx, request{what: "ending a sandbox", method: http.MethodDelete, again: true}, "/sandboxes/"+id, nil, nil)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		return nil
	}
	return err
}

// extend sets the time until a sandbox's end.
func (s *service) extend(ctx context.Context, id string) error {
	return s.plane(ctx, request{what: "extending a sandbox", method: http.MethodPost, again: true}, "/sandboxes/"+id+"/timeout",
		map[string]int64{"timeout": int64(s.timeout / time.Second)}, nil)
}

// maxPages bounds a list, in pages.
const maxPages = 1000

// list returns the sandboxes with a metadata value. Paused ones are included.
func (s *service) list(ctx context.Context, name, value string) ([]listed, error) {
	// the server decodes names and values once more than the form
	form := url.Values{url.PathEscape(name): {url.PathEscape(value)}}.Encode()
	var all []listed
	for token, page := "", 0; page < maxPages; page++ {
		query := url.Values{"metadata": {form}, "state": {"running,paused"}, "limit": {"100"}}
		if token != "" {
			query.Set("nextToken", token)
		}
		some, next, err := s.page(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			if isID(l.ID) && l.Metadata[name] == value {
				all = append(all, l)
			}
		}
		if next == "" {
			return all, nil
		}
		token = next
	}
	return nil, sandbar.Errorf(sandbar.Unavailable, "listing sandboxes: the list has no end")
}

// page returns one page of a list, and the token of the next, "" for none.
func (s *service) page(ctx context.Context, query url.Values) ([]listed, string, error) {
	q := request{what: "listing sandboxes", method: http.MethodGet, again: true, bound: callBound}
	var next string
	q.next = &next
	var all []listed
	err := s.plane(ctx, q, "/v2/sandboxes?"+query.Encode(), nil, &all)
	return all, next, err
}
