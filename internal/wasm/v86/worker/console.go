package worker

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/v86/guest"
)

// console starts an agent through a machine's console. It waits for the banner of the guest
// program. If it finds a login prompt or a shell instead, it logs in and uploads the guest program
// through the shell.
type console struct {
	send   func(text string) error // to the console
	upload func(b []byte)          // to the second serial port
	agent  []byte                  // the guest program, for images without it

	stage      stage
	tail       []byte // last part of the console's output
	lastOutput time.Duration
	lastSent   time.Duration // when the last line was sent
	tries      int
}

// stage is the progress of a boot.
type stage int

const (
	stageBoot   stage = iota // no prompt was recognized yet
	stageProbe               // the probe was sent to a shell
	stageUpload              // the receive command was sent to the shell
	stageReady               // the banner was printed; the agent speaks next
)

// keptTail is the size of the tail, in bytes.
const keptTail = 4096

// Commands for a shell. Their output contains the result of a calculation, so that it differs from
// the terminal's echo of the command.
const (
	probe       = "echo SANDBAR-$((4100 + 3))-SHELL"
	probeAnswer = "SANDBAR-4103-SHELL"
	// receive opens the port before it prints the answer, and reads exactly the program's length.
	receive = `exec 9<>/dev/ttyS1 && stty raw -echo crtscts 115200 <&9 && echo SANDBAR-$((4100 + 4))-SEND && ` +
		`D=/run && { [ -w $D ] || D=/tmp; } && head -c %d <&9 >$D/sandbar-guest && exec 9>&- && chmod 700 $D/sandbar-guest && ` +
		`{ $D/sandbar-guest </dev/null & } || echo SANDBAR-$((4100 + 5))-FAILED`
	sendAnswer   = "SANDBAR-4104-SEND"
	failedAnswer = "SANDBAR-4105-FAILED"
)

var (
	errPassword = errors.New("the machine asks for a password on its console; it must let root in without one, or begin Sandbar's guest program itself")
	errShell    = errors.New("the machine's shell could not start Sandbar's guest program; it needs stty, head and a second serial port, /dev/ttyS1")
)

// received processes output of the console; now is the machine's clock.
func (c *console) received(b []byte, now time.Duration) error {
	c.lastOutput = now
	c.tail = append(c.tail, b...)
	if over := len(c.tail) - keptTail; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	text := string(c.tail)
	if i := strings.Index(text, guest.BannerStart); i >= 0 {
		line, _, whole := strings.Cut(text[i:], "\n")
		if !whole {
			return nil
		}
		if strings.TrimSpace(line) != guest.Banner() {
			return fmt.Errorf("the machine has another release of Sandbar's guest program: it says %q and not %q", strings.TrimSpace(line), guest.Banner())
		}
		c.stage, c.tail = stageReady, nil
		return nil
	}
	switch c.stage {
	case stageProbe:
		if strings.Contains(text, probeAnswer) {
			return c.ask(stageUpload, fmt.Sprintf(receive, len(c.agent)), now)
		}
	case stageUpload:
		if strings.Contains(text, failedAnswer) {
			return errShell
		}
		if strings.Contains(text, sendAnswer) {
			c.tail = nil
			c.upload(c.agent)
		}
	}
	return nil
}

// ask sends a line to the console and sets the stage.
func (c *console) ask(next stage, line string, now time.Duration) error {
	c.stage, c.lastSent, c.tail = next, now, nil
	return c.send(line + "\n")
}

// A line without an end is taken for a prompt after promptSilence without output. After
// wakeSilence without a prompt, an empty line is sent, to make a getty or a shell print one.
const (
	promptSilence = 500 * time.Millisecond
	wakeSilence   = 20 * time.Second
)

// answerPrompt is called after each step and answers a prompt.
func (c *console) answerPrompt(now time.Duration) error {
	if c.stage > stageProbe || now-c.lastOutput < promptSilence || now-c.lastSent < promptSilence {
		return nil
	}
	last := c.tail[bytes.LastIndexByte(c.tail, '\n')+1:]
	switch end := strings.TrimSpace(stripControls(string(last))); {
	case strings.HasSuffix(strings.ToLower(end), "password:"):
		return errPassword
	case strings.HasSuffix(strings.ToLower(end), "login:"):
		return c.ask(stageBoot, "root", now)
	case strings.HasSuffix(end, "#"), strings.HasSuffix(end, "$"), strings.HasSuffix(end, "%"), strings.HasSuffix(end, ">"):
		if c.tries++; c.tries > 20 {
			return errShell
		}
		return c.ask(stageProbe, probe, now)
	}
	if now-c.lastOutput > wakeSilence && now-c.lastSent > wakeSilence {
		return c.ask(c.stage, "", now)
	}
	return nil
}

// stripControls removes control characters and escape sequences of terminals.
func stripControls(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '[':
			for i += 2; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		case s[i] >= ' ' && s[i] != 0x7f:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
