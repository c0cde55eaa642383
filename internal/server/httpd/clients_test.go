package httpd

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/engine"
)

// A handler gets the client of the request's token and the request's connection.
func TestClientsAreKnown(t *testing.T) {
	s, logs := start(t, func(o *Options) {
		o.Clients = map[string]string{"ci": "battery", "b": "staple"}
		o.Routes["GET /who"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := engine.Client(r.Context())
			io.WriteString(w, c.Name+"/"+c.Flow)
		})
	})
	flows := map[string]bool{}
	for _, tt := range []struct {
		authorization, name string
		status              int
	}{
		{"Bearer " + token, "", 200}, {"Bearer battery", "ci", 200}, {"Bearer staple", "b", 200},
		{"battery", "", 401}, {"Bearer batterystaple", "", 401}, {"Bearer ", "", 401},
	} {
		resp, body := send(t, s, "GET /who HTTP/1.1\nHost: localhost\nAuthorization: "+tt.authorization+"\nConnection: close\n\n")
		if resp.StatusCode != tt.status {
			t.Errorf("%q: status %d, want %d", tt.authorization, resp.StatusCode, tt.status)
		}
		name, flow, _ := strings.Cut(body, "/")
		if tt.status == 200 && (name != tt.name || flow == "" || flows[flow]) {
			t.Errorf("%q: client %q over %q, want %q over a connection of its own", tt.authorization, name, flow, tt.name)
		}
		flows[flow] = true
	}
	if said := logs.String(); strings.Contains(said, "battery") || strings.Contains(said, "staple") {
		t.Errorf("a token is in the log:\n%s", said)
	}
}

// Connections beyond the bound are refused with a response, existing ones continue, and a free slot
// is used again.
func TestConnectionsAreBounded(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "unix:" + t.TempDir() + "/s"} {
		s, _ := start(t, func(o *Options) { o.Listen, o.MaxConnections = listen, 2 })
		addr := s.listener.Addr()
		dial := func() net.Conn {
			c, err := net.Dial(addr.Network(), addr.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			c.SetDeadline(time.Now().Add(time.Minute))
			return c
		}
		ask := func(c net.Conn) (*http.Response, error) {
			io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Errorf("the body: %v", err)
				}
			}
			return resp, err
		}
		first, second := dial(), dial()
		for _, c := range []net.Conn{first, second, first} {
			if resp, err := ask(c); err != nil || resp.StatusCode != 200 {
				t.Fatalf("within the bound: %v %v", resp, err)
			}
		}
		for range 3 * maxRefusals {
			resp, err := ask(dial())
			if err != nil {
				continue // at this number they are closed without a response
			}
			if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
				t.Fatalf("beyond the bound: %v", resp)
			}
		}
		third := dial()
		if resp, err := ask(third); err == nil && resp.StatusCode != 503 {
			t.Fatalf("beyond the bound: %v", resp)
		}
		second.Close()
		var resp *http.Response
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			var err error
			if resp, err = ask(dial()); err == nil && resp.StatusCode == 200 {
				break
			}
		}
		if resp == nil || resp.StatusCode != 200 {
			t.Errorf("after one had gone: %v", resp)
		}
		if resp, err := ask(first); err != nil || resp.StatusCode != 200 {
			t.Errorf("the one that was there all the time: %v %v", resp, err)
		}
		for end := time.Now().Add(time.Minute); s.listener.(*limitListener).busy.Load() > 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
