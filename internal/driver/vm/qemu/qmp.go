package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Bounds of the connection to qemu.
const (
	maxMessage     = 256 << 10        // bytes of one message
	maxMessages    = 1000             // messages before an answer
	commandTimeout = 30 * time.Second // one command, if the caller's context ends later
)

// control is the QMP connection of one machine. Its methods must not be called concurrently.
type control struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func newControl(conn net.Conn) *control {
	s := bufio.NewScanner(conn)
	s.Buffer(make([]byte, 0, 4<<10), maxMessage)
	return &control{conn: conn, lines: s}
}

// message is one message of qemu.
type message struct {
	QMP    json.RawMessage `json:"QMP"`
	Return json.RawMessage `json:"return"`
	Event  string          `json:"event"`
	Data   struct {
		Status string `json:"status"`
	} `json:"data"`
	Error *struct {
		Description string `json:"desc"`
	} `json:"error"`
}

// command is one QMP command.
type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// deadline bounds the reads and writes until release.
func (c *control) deadline(ctx context.Context) (release func()) {
	end := time.Now().Add(commandTimeout)
	if t, ok := ctx.Deadline(); ok && t.Before(end) {
		end = t
	}
	c.conn.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// run sends commands and waits for all answers. The first error ends it.
func (c *control) run(ctx context.Context, commands ...command) error {
	defer c.deadline(ctx)()
	var out []byte
	for _, cmd := range commands {
		b, err := json.Marshal(cmd)
		if err != nil {
			return err
		}
		out = append(append(out, b...), '\n')
	}
	if _, err := c.conn.Write(out); err != nil {
		return c.failed(ctx, err)
	}
	for _, cmd := range commands {
		m, err := c.read(ctx, func(m *message) bool { return m.Return != nil || m.Error != nil })
		if err != nil {
			return err
		}
		if m.Error != nil {
			return fmt.Errorf("qemu refuses %s: %s", cmd.Execute, sandbar.Quote(m.Error.Description, 300))
		}
	}
	return nil
}

// read returns the first message that is wanted, and skips others.
func (c *control) read(ctx context.Context, wanted func(*message) bool) (*message, error) {
	for range maxMessages {
		if !c.lines.Scan() {
			err := c.lines.Err()
			if err == nil {
				err = errors.New("qemu has ended")
			}
			return nil, c.failed(ctx, err)
		}
		var m message
		if err := json.Unmarshal(c.lines.Bytes(), &m); err != nil {
			return nil, errors.New("qemu sent a malformed message on its control connection")
		}
		if wanted(&m) {
			return &m, nil
		}
	}
	return nil, errors.New("qemu sent too many messages on its control connection")
}

// failed returns ctx's error if ctx has ended, otherwise err.
func (c *control) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return context.DeadlineExceeded
	}
	return err
}

// greet reads qemu's greeting and enables commands, and then runs more commands.
func (c *control) greet(ctx context.Context, more ...command) error {
	release := c.deadline(ctx)
	_, err := c.read(ctx, func(m *message) bool { return m.QMP != nil })
	release()
	if err != nil {
		return err
	}
	return c.run(ctx, append([]command{{Execute: "qmp_capabilities"}}, more...)...)
}

// ignoreShared makes migrations leave out the memory, which is a shared file.
func ignoreShared() command {
	type capability struct {
		Capability string `json:"capability"`
		State      bool   `json:"state"`
	}
	return command{"migrate-set-capabilities", map[string]any{"capabilities": []capability{{"x-ignore-shared", true}, {"events", true}}}}
}

// migrated waits for the end of a migration.
func (c *control) migrated(ctx context.Context) error {
	defer c.deadline(ctx)()
	m, err := c.read(ctx, func(m *message) bool {
		return m.Event == "MIGRATION" && (m.Data.Status == "completed" || m.Data.Status == "failed")
	})
	if err == nil && m.Data.Status == "failed" {
		err = errors.New("qemu could not transfer the machine's state")
	}
	return err
}
