package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/v86/guest"
)

// talk is a part of a simulated console: its output, and the input that it expects next ("": none).
type talk struct{ says, wants string }

// play simulates a console and returns the final stage and the uploaded program.
func play(t *testing.T, lines ...talk) (*console, string, error) {
	t.Helper()
	var sent, shipped strings.Builder
	c := &console{agent: []byte("the guest's program"),
		send:   func(text string) error { sent.WriteString(text); return nil },
		upload: func(b []byte) { shipped.Write(b) }}
	now := time.Duration(0)
	for _, l := range lines {
		if l.says != "" {
			now += 10 * time.Millisecond
			if err := c.received([]byte(l.says), now); err != nil {
				return c, shipped.String(), err
			}
		}
		for range 400 { // 40 seconds
			if sent.Len() > 0 && l.wants != "" {
				break
			}
			now += 100 * time.Millisecond
			if err := c.answerPrompt(now); err != nil {
				return c, shipped.String(), err
			}
			if l.wants == "" {
				break
			}
		}
		if got := sent.String(); !strings.HasPrefix(got, l.wants) || l.wants == "" && got != "" {
			t.Errorf("after %q it sent %q, want %q", l.says, got, l.wants)
		}
		sent.Reset()
	}
	return c, shipped.String(), nil
}

var upload = fmt.Sprintf(receive, len("the guest's program")) + "\n"

// The banner of the guest program is sufficient.
func TestConsoleBanner(t *testing.T) {
	c, shipped, err := play(t, talk{"SeaBIOS\r\n", ""}, talk{"[ 1.0] noise\r\nSANDBAR-", ""}, talk{strings.TrimPrefix(guest.Banner(), "SANDBAR-"), ""}, talk{"\r\n", ""})
	if err != nil || c.stage != stageReady || shipped != "" {
		t.Errorf("stage %d, shipped %q, %v", c.stage, shipped, err)
	}
}

// The program is uploaded through a login and a shell that echo and use colours.
func TestConsoleLogin(t *testing.T) {
	c, shipped, err := play(t,
		talk{"Debian GNU/Linux 12 host ttyS0\r\n\r\nhost login: ", "root\n"},
		talk{"root\r\nWelcome!\r\n\x1b[01;31mroot@host\x1b[0m:~# ", probe + "\n"},
		talk{probe + "\r\n", ""},
		talk{probeAnswer + "\r\nroot@host:~# ", upload},
		talk{upload + "\r\n", ""},
		talk{sendAnswer + "\r\n", ""},
		talk{"\r\n" + guest.Banner() + "\r\n", ""})
	if err != nil || c.stage != stageReady || shipped != "the guest's program" {
		t.Errorf("stage %d, shipped %q, %v", c.stage, shipped, err)
	}
}

// A silent console gets an empty line, and various prompts of shells are recognized.
func TestConsoleKnocks(t *testing.T) {
	for _, prompt := range []string{"/ # ", "$ ", "host% ", "sh-5.2#", "\x1b[32m>\x1b[0m "} {
		c, _, err := play(t, talk{"Please press Enter to activate this console.", "\n"}, talk{"\r\n" + prompt, probe + "\n"}, talk{probeAnswer + "\r\n", upload})
		if err != nil || c.stage != stageUpload {
			t.Errorf("%q: stage %d, %v", prompt, c.stage, err)
		}
	}
}

func TestConsoleFails(t *testing.T) {
	if _, _, err := play(t, talk{"host login: ", "root\n"}, talk{"root\r\nPassword: ", "x"}); !errors.Is(err, errPassword) {
		t.Errorf("a password: %v", err)
	}
	if _, _, err := play(t, talk{"# ", probe + "\n"}, talk{probeAnswer + "\r\n", upload}, talk{failedAnswer + "\r\n", ""}); !errors.Is(err, errShell) {
		t.Errorf("a shell without tools: %v", err)
	}
	if _, _, err := play(t, talk{guest.BannerStart + "0\r\n", ""}); err == nil || !strings.Contains(err.Error(), "another release") {
		t.Errorf("another release: %v", err)
	}
	lines := make([]talk, 0, 50)
	for range 25 { // something that answers everything with a prompt
		lines = append(lines, talk{"what? > ", probe})
	}
	if _, _, err := play(t, lines...); !errors.Is(err, errShell) {
		t.Errorf("no shell at all: %v", err)
	}
}

// The stored output is bounded.
func TestConsoleKeepsLittle(t *testing.T) {
	c := &console{}
	for range 1000 {
		if err := c.received([]byte(strings.Repeat("x", 1000)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.tail) > keptTail || cap(c.tail) > 4*keptTail {
		t.Errorf("%d bytes are kept, in %d", len(c.tail), cap(c.tail))
	}
}

func FuzzConsole(f *testing.F) {
	f.Add("login: ")
	f.Add("\x1b[")
	f.Add(guest.BannerStart)
	f.Fuzz(func(t *testing.T, text string) {
		c := &console{send: func(string) error { return nil }, upload: func([]byte) {}}
		for i := range 4 {
			now := time.Duration(i) * time.Second
			if c.received([]byte(text), now) != nil || c.answerPrompt(now+promptSilence) != nil {
				return
			}
		}
	})
}
