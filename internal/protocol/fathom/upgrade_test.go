package fathom

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/engine"
)

// TestUpgrade tests the negotiation of the protocol version, and requests without an upgrade.
func TestUpgrade(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	for _, tt := range []struct {
		name    string
		headers []string
		status  int
		body    string
	}{
		{"no version", nil, 101, ""},
		{"version 1", []string{"X-Protocol-Version: 1"}, 101, ""},
		{"version 1 twice", []string{"X-Protocol-Version: 1", "x-protocol-version: 1"}, 101, ""},
		{"version 1 and white space", []string{"X-Protocol-Version:   1  "}, 101, ""},
		{"version 2", []string{"X-Protocol-Version: 2"}, 400, `protocol version "2" is not served; this server speaks version 1`},
		{"version 1.0", []string{"X-Protocol-Version: 1.0"}, 400, "this server speaks version 1"},
		{"version 1, 2", []string{"X-Protocol-Version: 1, 2"}, 400, "this server speaks version 1"},
		{"versions 1 and 2", []string{"X-Protocol-Version: 1", "X-Protocol-Version: 2"}, 400, `protocol version "2" is not served`},
		{"empty version", []string{"X-Protocol-Version:"}, 400, "this server speaks version 1"},
		{"control characters", []string{"X-Protocol-Version: a\tb"}, 400, `"a\tb"`},
		{"foreign origin", []string{"Origin: https://elsewhere.example"}, 101, ""}, // the listener's decision
		{"compression offered", []string{"Sec-WebSocket-Extensions: permessage-deflate"}, 101, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, resp := r.raw(tt.headers...)
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d, want %d", resp.StatusCode, tt.status)
			}
			if got := resp.Header.Get("X-Protocol-Version"); got != "1" {
				t.Errorf("X-Protocol-Version is %q", got)
			}
			if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
				t.Errorf("the extension %q was accepted", got)
			}
			if tt.status != 101 {
				if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), tt.body) {
					t.Errorf("the body is %q, want %q in it", b, tt.body)
				}
			}
		})
	}
	for _, method := range []string{"GET", "POST", "HEAD"} {
		req, err := http.NewRequestWithContext(t.Context(), method, r.url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("X-Protocol-Version") != "1" {
			t.Errorf("%s without an upgrade: %s", method, resp.Status)
		}
	}
}

// clientFrame returns a client's frame. Its mask is zero, so the payload is unchanged.
func clientFrame(first byte, payload string) []byte {
	b := []byte{first}
	if len(payload) < 126 {
		b = append(b, 0x80|byte(len(payload)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(len(payload)))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// The first byte of frames.
const (
	finText  = 0x81
	text1st  = 0x01
	contd    = 0x00
	finContd = 0x80
	finClose = 0x88
	finPing  = 0x89
	finPong  = 0x8a
)

// serverFrame reads one frame of the server.
func serverFrame(br *bufio.Reader) (first byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	if size == 126 {
		var b [2]byte
		if _, err := io.ReadFull(br, b[:]); err != nil {
			return 0, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(b[:]))
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(br, payload)
	return head[0], payload, err
}

// closeOf reads until the server closes and returns the status, 0 without a close frame.
func closeOf(br *bufio.Reader) int {
	for {
		first, payload, err := serverFrame(br)
		if err != nil {
			return 0
		}
		if first == finClose && len(payload) >= 2 {
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

// TestBadFrames tests that a violation of the WebSocket protocol ends the connection with its
// status, and no other connection.
func TestBadFrames(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	other := r.connect()
	other.execute("e1", "print stdout ready\nblock-until go")
	other.expect("e1 ack", "e1 status running", "e1 stdout ready\n")
	const ping = `{"v":1,"type":"ping"}`
	unmasked := append([]byte{finText, byte(len(ping))}, ping...)
	for _, tt := range []struct {
		name   string
		frames []byte
		status int
	}{
		{"unmasked", unmasked, 1002},
		{"compressed", clientFrame(finText|0x40, ping), 1002},
		{"reserved bit", clientFrame(finText|0x10, ping), 1002},
		{"reserved opcode", clientFrame(0x83, ping), 1002},
		{"reserved control opcode", clientFrame(0x8b, ""), 1002},
		{"fragmented control frame", clientFrame(0x09, ""), 1002},
		{"long control frame", clientFrame(finPing, strings.Repeat("x", 126)), 1002},
		{"continuation of nothing", clientFrame(finContd, ping), 1002},
		{"text within a message", append(clientFrame(text1st, "{"), clientFrame(finText, ping)...), 1002},
		{"bad close status", clientFrame(finClose, "\x00\x01"), 1002},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, br, _ := r.raw()
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write(tt.frames); err != nil {
				t.Fatal(err)
			}
			if got := closeOf(br); got != tt.status {
				t.Errorf("closed with %d, want %d", got, tt.status)
			}
		})
	}
	r.driver.Open("go")
	other.expect("e1 status completed", "e1 result 0")
}

// TestFragments tests a message in fragments, with control frames in between.
func TestFragments(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	conn, br, _ := r.raw()
	conn.SetDeadline(time.Now().Add(patience))
	const ping = `{"v":1,"type":"ping"}`
	send := clientFrame(text1st, "")
	for i := range len(ping) {
		send = append(send, clientFrame(finPing, "x")...)
		send = append(send, clientFrame(finPong, "unasked")...)
		send = append(send, clientFrame(contd, ping[i:i+1])...)
	}
	if _, err := conn.Write(append(send, clientFrame(finContd, "")...)); err != nil {
		t.Fatal(err)
	}
	for range len(ping) {
		if first, payload, err := serverFrame(br); err != nil || first != finPong || string(payload) != "x" {
			t.Fatalf("%x %q %v, want a pong", first, payload, err)
		}
	}
	if first, payload, err := serverFrame(br); err != nil || first != finText || !strings.Contains(string(payload), `"pong"`) {
		t.Fatalf("%x %q %v, want the answer", first, payload, err)
	}
}

// TestFrameTooBig tests that a message that is too large to be valid is not read to its end, and
// that the largest valid one is.
func TestFrameTooBig(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{MaxCode: 64 << 10, MaxStdin: 10, MaxEnv: 10})
	c := r.connect()
	worst := `"` + strings.Repeat(`\u0020`, 64<<10) + `"`
	const head = `{"v":1,"type":"execute","id":"e1","language":"shell","limits":{"timeout_ms":1000,"memory_mb":16},"code":`
	c.send(head + worst + "}")
	c.expect("e1 ack", "e1 status running", "e1 status completed", "e1 result 0")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The server may close before all of it was sent.
	_ = c.ws.Write(ctx, websocket.MessageText, []byte(head+`"`+strings.Repeat("x", 1<<20)+`"}`))
	if got := c.closed(); got != websocket.StatusMessageTooBig {
		t.Errorf("closed with %v, want 1009", got)
	}
}

// TestMessageWithoutEnd tests endless empty fragments, which exceed no size. Control frames do not
// count as progress.
func TestMessageWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{ReadTimeout: 10 * time.Second})
		conn, br, _ := r.raw()
		status := make(chan int)
		go func() { status <- closeOf(br) }()
		began := time.Now()
		var writer sync.WaitGroup
		defer writer.Wait()
		defer conn.Close()
		writer.Go(func() {
			_, err := conn.Write(clientFrame(text1st, ""))
			for err == nil {
				time.Sleep(time.Second)
				_, err = conn.Write(append(clientFrame(contd, ""), clientFrame(finPing, "")...))
			}
		})
		if got := <-status; got != 1008 {
			t.Errorf("closed with %d, want 1008", got)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

// TestControlFlood tests that pings are answered one by one, and that a flood uses bounded memory.
func TestControlFlood(t *testing.T) {
	r := newRig(t, engine.Config{}, Options{})
	conn, br, _ := r.raw()
	conn.SetDeadline(time.Now().Add(patience))
	const floods = 20_000
	go func() {
		batch := bytes.Repeat(clientFrame(finPing, "flood"), 100)
		for range floods / 100 {
			if _, err := conn.Write(batch); err != nil {
				return
			}
		}
		conn.Write(clientFrame(finText, `{"v":1,"type":"ping"}`))
	}()
	for i := range floods {
		if first, payload, err := serverFrame(br); err != nil || first != finPong || string(payload) != "flood" {
			t.Fatalf("answer %d: %x %q %v", i, first, payload, err)
		}
	}
	if first, payload, err := serverFrame(br); err != nil || first != finText || !strings.Contains(string(payload), `"pong"`) {
		t.Fatalf("%x %q %v, want the answer", first, payload, err)
	}
}

// TestControlFloodUnread tests a flood from a client that does not read. The connection has no
// buffer, so the first pong cannot be sent; the server reads no more and drops the connection.
func TestControlFloodUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		conn, _, _ := r.raw()
		sent := 0
		for {
			if _, err := conn.Write(clientFrame(finPing, strings.Repeat("x", 125))); err != nil {
				break
			}
			sent++
		}
		if most := (4<<10)/125 + 2; sent > most { // fits into the server's read buffer
			t.Errorf("%d pings were taken, want at most %d", sent, most)
		}
	})
}

// TestKeepAlive tests that a peer that does not answer pings is dropped, and that an idle peer that
// answers is kept.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubble(t, engine.Config{}, Options{})
		_, br, _ := r.raw()
		began := time.Now()
		if status := closeOf(br); status != 0 {
			t.Errorf("closed with %d; a dead peer is owed no close", status)
		}
		if d := time.Since(began); d != 60*time.Second {
			t.Errorf("dropped after %v, want one interval and its answer's time", d)
		}

		c := r.connect()
		answer := make(chan error) // pings are answered during reads
		go func() {
			_, _, err := c.ws.Read(context.Background())
			answer <- err
		}()
		time.Sleep(time.Hour)
		c.ping()
		if err := <-answer; err != nil {
			t.Errorf("a live peer was dropped: %v", err)
		}
	})
}
