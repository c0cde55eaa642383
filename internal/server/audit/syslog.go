package audit

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// Syslog is an audit log that is sent to a syslog server, in messages of RFC 5424 with a record
// each.
type Syslog struct {
	network, address string
	host             string
	logger           *slog.Logger

	mu      sync.Mutex
	conn    net.Conn // nil: not connected
	pending [][]byte // messages that are not sent
	size    int      // of pending, in bytes
	failed  error    // why; nil if pending is empty
	tried   time.Time
}

var _ engine.Auditor = (*Syslog)(nil)

const (
	// syslogTimeout bounds a connection to the server, and a message.
	syslogTimeout = 2 * time.Second
	// syslogPause is the time between two attempts, so that requests do not wait one after another.
	syslogPause = time.Second
	// syslogPriority is the facility "log audit" and the severity "informational" (RFC 5424, 6.2.1).
	syslogPriority = 13*8 + 6
	// syslogProgram is the name of the program in messages.
	syslogProgram = "sandbar"
)

// OpenSyslog connects to the syslog server at an address. network is "unixgram", "udp" or "tcp".
// Unavailable: the server is not there.
func OpenSyslog(network, address string, logger *slog.Logger) (_ *Syslog, err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	l := &Syslog{network: network, address: address, host: hostName(), logger: logger}
	if l.conn, err = net.DialTimeout(network, address, syslogTimeout); err != nil {
		return nil, &sandbar.Error{Code: sandbar.Unavailable, Field: "audit.syslog", Message: "the syslog server does not answer", Err: err,
			Fix: "start it, or set audit.syslog to another one"}
	}
	return l, nil
}

// hostName is the name of this host for messages; "-" if it is unknown.
func hostName() string {
	name, err := os.Hostname()
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	if err != nil || name == "" {
		return "-"
	}
	return name
}

// Record implements engine.Auditor.
func (l *Syslog) Record(a engine.Action) {
	record := encode(a)
	m := fmt.Appendf(nil, "<%d>1 %s %s %s %d %s - ", syslogPriority, a.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), l.host, syslogProgram, os.Getpid(), a.Verb)
	m = append(m, record...)
	if l.network == "tcp" { // octet counting (RFC 6587, 3.4.1)
		m = append([]byte(strconv.Itoa(len(m))+" "), m...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+len(m) > maxPending {
		l.logger.Error("a record of the audit log is lost", "action", string(a.Verb), "sandbox", a.Sandbox, "error", l.failed)
		return
	}
	l.pending, l.size = append(l.pending, m), l.size+len(m)
	before := l.failed
	if before != nil {
		return // Ready tries again
	}
	if err := l.flush(); err != nil {
		l.logger.Error("the audit log cannot be sent; the daemon refuses new work until it can", "error", err)
	}
}

// Ready implements engine.Auditor. It tries again to send.
func (l *Syslog) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	err := l.failed
	if time.Since(l.tried) >= syslogPause {
		err = l.flush()
	}
	if err != nil {
		return &sandbar.Error{Code: sandbar.Unavailable, Message: "the audit log cannot be sent to the syslog server", Err: err,
			Fix: "let the operator start the server; then try again"}
	}
	l.logger.Info("the audit log can be sent again")
	return nil
}

// flush sends the pending messages. After an error it connects once more. The caller has mu.
func (l *Syslog) flush() error {
	defer func() { l.tried = time.Now() }()
	for attempt := 0; len(l.pending) > 0; attempt++ {
		err := l.send()
		if err == nil {
			break
		}
		if l.conn != nil {
			l.conn.Close()
			l.conn = nil
		}
		if attempt == 1 {
			l.failed = err
			return err
		}
	}
	l.pending, l.size, l.failed = nil, 0, nil
	return nil
}

// send sends the pending messages, and forgets each that is sent.
func (l *Syslog) send() (err error) {
	if l.conn == nil {
		if l.conn, err = net.DialTimeout(l.network, l.address, syslogTimeout); err != nil {
			l.conn = nil
			return err
		}
	}
	for len(l.pending) > 0 {
		l.conn.SetWriteDeadline(time.Now().Add(syslogTimeout))
		if _, err := l.conn.Write(l.pending[0]); err != nil {
			return err
		}
		l.size -= len(l.pending[0])
		l.pending = l.pending[1:]
	}
	return nil
}

// Close sends what is pending and closes the connection.
func (l *Syslog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.flush()
	if l.conn != nil {
		l.conn.Close()
	}
	return err
}

// both records in two logs.
type both struct{ first, second engine.Auditor }

// Both returns an Auditor that records in two logs, and is ready if both are.
func Both(first, second engine.Auditor) engine.Auditor { return both{first, second} }

// Record implements engine.Auditor.
func (b both) Record(a engine.Action) {
	b.first.Record(a)
	b.second.Record(a)
}

// Ready implements engine.Auditor.
func (b both) Ready() error {
	if err := b.first.Ready(); err != nil {
		return err
	}
	return b.second.Ready()
}
