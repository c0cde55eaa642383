package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// header is the header of a message of RFC 5424.
var header = regexp.MustCompile(`^<110>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z [!-~]+ sandbar \d+ program\.run - (\{.*\})$`)

// recordOf returns the record of a message.
func recordOf(t *testing.T, message []byte) (r line) {
	t.Helper()
	m := header.FindSubmatch(message)
	if m == nil {
		t.Fatalf("%q is no message", message)
	}
	if err := json.Unmarshal(m[1], &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Each action is one message, by each kind of server.
func TestSyslog(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	for network, address := range map[string]string{"unixgram": socket, "udp": "127.0.0.1:0"} {
		server, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		l, err := OpenSyslog(network, server.LocalAddr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64<<10)
		for i := range 3 {
			l.Record(action(i))
			n, _, err := server.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			if r := recordOf(t, buf[:n]); r.Sandbox != sandbar.ID(fmt.Sprint("sb_", i)) || r.Client != "ci" || r.Outcome != "exited" {
				t.Errorf("%s: %+v", network, r)
			}
		}
		if err := errors.Join(l.Ready(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Messages over TCP have their length in front (RFC 6587).
func TestSyslogTCP(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l, err := OpenSyslog("tcp", server.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l.Record(action(1))
	l.Record(action(2))
	l.Close()
	from := bufio.NewReader(conn)
	for i := 1; i <= 2; i++ {
		size, err := from.ReadString(' ')
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSuffix(size, " "))
		if err != nil {
			t.Fatal(err)
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(from, message); err != nil {
			t.Fatal(err)
		}
		if r := recordOf(t, message); r.Sandbox != sandbar.ID(fmt.Sprint("sb_", i)) {
			t.Errorf("%+v", r)
		}
	}
}

// While the server is gone the log is not ready and keeps what happens, within a bound. Then it
// sends that, in order.
func TestSyslogGone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	server, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	l, err := OpenSyslog("unixgram", socket, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server.Close()
	l.Record(action(0))
	if e := sandbar.AsError(l.Ready()); e == nil || e.Code != sandbar.Unavailable || e.Fix == "" {
		t.Errorf("Ready: %v", l.Ready())
	}
	l.Record(action(1))
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, said.String())
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if server, err = net.ListenPacket("unixgram", socket); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l.tried = time.Time{}
	if err := l.Ready(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	for i := range 2 {
		n, _, err := server.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if r := recordOf(t, buf[:n]); r.Sandbox != sandbar.ID(fmt.Sprint("sb_", i)) {
			t.Errorf("%+v", r)
		}
	}
	server.Close()
	for range 2 * maxPending / 100 {
		l.Record(action(0))
	}
	if l.size > maxPending {
		t.Errorf("%d bytes are kept", l.size)
	}
}

// A server that does not exist is an error of the start.
func TestSyslogMissing(t *testing.T) {
	if _, err := OpenSyslog("unixgram", filepath.Join(t.TempDir(), "none"), nil); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Error(err)
	}
}

// Both logs have each action, and both must be ready.
func TestBoth(t *testing.T) {
	first := open(t, Options{Path: filepath.Join(t.TempDir(), "a"), MaxBytes: 1 << 20})
	second := open(t, Options{Path: filepath.Join(t.TempDir(), "b"), MaxBytes: 1 << 20})
	l := Both(first, second)
	l.Record(action(1))
	if len(records(t, first.options.Path)) != 1 || len(records(t, second.options.Path)) != 1 || l.Ready() != nil {
		t.Error("an action is not in both logs")
	}
	second.failed = errors.New("full")
	second.pending = []byte("x\n")
	second.file.Close()
	var failing engine.Auditor = l
	if failing.Ready() == nil {
		t.Error("the log is ready although one of its parts is not")
	}
}
