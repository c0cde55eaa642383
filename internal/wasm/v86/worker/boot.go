package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/machine"
)

// bootConfig is what a machine's first life is made from.
type bootConfig struct {
	emulator *machine.Emulator
	files    *image.Files
	memory   int64
	agent    []byte // the guest program
	limit    time.Duration
}

// boot boots an image and returns the machine when its agent is ready, as it
// will be found after every restore.
func boot(ctx context.Context, cfg bootConfig) (*machine.Snapshot, error) {
	img, err := cfg.files.Read()
	if err != nil {
		return nil, err
	}
	cfg.files.Close()
	m, err := cfg.emulator.New(ctx, machineConfig(img, cfg.memory))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	b := &booting{m: m, began: time.Now(), limit: cfg.limit, calls: make(chan func() error, 1)}
	b.loop = &loop{m: m, calls: b.calls, console: b.onConsole, output: b.onOutput, step: b.onStep}
	b.find = &console{agent: cfg.agent, send: b.loop.send, ship: func(p []byte) { b.loop.pending = append(b.loop.pending, p...) }}
	if img.Type == image.State { // it may have said all it had to
		b.find.heard = -knockSilence
	}
	return b.run(ctx)
}

// machineConfig says what machine an image is for.
func machineConfig(img *image.Image, memory int64) machine.Config {
	c := machine.Config{Memory: memory, CommandLine: img.CommandLine}
	switch img.Type {
	case image.ISO:
		c.CD = img.Data
	case image.Disk:
		c.Disk = img.Data
	case image.State:
		c.Snapshot = machine.Foreign(img.Data)
	default:
		c.Kernel, c.Initrd = img.Data, img.Initrd
	}
	return c
}

// booting is a machine on its way to its agent.
type booting struct {
	m     *machine.Machine
	loop  *loop
	find  *console
	began time.Time
	limit time.Duration
	calls chan func() error

	told time.Time
	conn net.Conn // to client, once the agent speaks
}

func (b *booting) run(ctx context.Context) (*machine.Snapshot, error) {
	input := make(chan []byte, 1)
	b.loop.input = input
	// The client's side of the connection to the agent.
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	b.conn = ours
	go func() {
		defer close(input)
		buf := make([]byte, 32<<10)
		for {
			n, err := ours.Read(buf)
			if err != nil {
				return
			}
			select {
			case input <- append([]byte(nil), buf[:n]...):
			case <-ctx.Done():
				return
			}
		}
	}()
	ready := make(chan error, 1)
	go func() {
		err := setUp(ctx, theirs)
		ready <- err
		b.calls <- func() error { return errEnd }
	}()
	if err := b.loop.run(); err != nil {
		return nil, err
	}
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("the agent in the machine: %w", err)
	}
	b.m.Pause()
	return b.m.Save()
}

// setUp has a new agent set itself up, and runs a program once, whose pages are
// then in the guest's memory.
func setUp(ctx context.Context, conn net.Conn) error {
	box, err := client.New(ctx, conn, client.Options{})
	if err != nil {
		return err
	}
	plan := wire.Setup{Dir: sandbar.DefaultDir, Env: []string{"HOME=" + sandbar.DefaultDir,
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "TMPDIR=/tmp"}}
	if _, _, err := box.Setup(ctx, &plan); err != nil {
		return err
	}
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "ls / >/dev/null; echo"}}, driver.Stdio{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return nil // a machine without a shell is one all the same
	}
	_, err = p.Wait()
	return err
}

func (b *booting) onConsole(p []byte) error { return b.find.hear(p, b.m.Clock()) }

func (b *booting) onOutput(p []byte) error {
	if b.find.stage != stageReady {
		return nil // somebody else's
	}
	_, err := b.conn.Write(p)
	return err
}

// progressEvery is how often a boot tells that it goes on.
const progressEvery = 5 * time.Second

// onStep looks at the clock and the console after a step.
func (b *booting) onStep() error {
	passed := time.Since(b.began)
	if passed > b.limit {
		return b.late()
	}
	if time.Since(b.told) > progressEvery {
		b.told = time.Now()
		fmt.Fprintf(os.Stderr, "%s%d s\n", progress, int(passed.Seconds()))
	}
	return b.find.look(b.m.Clock())
}

// progress begins a line about how far a boot is.
const progress = "booting: "

// errSilent is a machine of which nothing is ever heard.
var errSilent = errors.New("nothing came from the console")

// late says what a machine did not do in time.
func (b *booting) late() error {
	limit := b.limit.Round(time.Second)
	switch {
	case b.find.stage == stageReady:
		return fmt.Errorf("the agent in the machine did not answer within %v", limit)
	case b.find.heard <= 0:
		return fmt.Errorf("%w within %v: the machine must use the first serial port (ttyS0) as its console", errSilent, limit)
	}
	return fmt.Errorf("there was neither Sandbar's guest program nor a login or shell on the machine's console within %v", limit)
}
