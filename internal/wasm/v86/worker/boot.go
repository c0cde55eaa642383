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

// bootConfig describes a boot.
type bootConfig struct {
	emulator *machine.Emulator
	files    *image.Files
	memory   int64
	agent    []byte // the guest program
	limit    time.Duration
}

// boot boots an image and returns a snapshot of the machine once its agent is ready.
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
	b.find = &console{agent: cfg.agent, send: b.loop.send, upload: func(p []byte) { b.loop.pending = append(b.loop.pending, p...) }}
	if img.Type == image.State { // resumed machine may print nothing, so knock at once
		b.find.lastOutput = -wakeSilence
	}
	return b.run(ctx)
}

// machineConfig returns the machine for an image.
func machineConfig(img *image.Image, memory int64) machine.Config {
	c := machine.Config{Memory: memory, CommandLine: img.CommandLine}
	switch img.Type {
	case image.ISO:
		c.CD = img.Data
	case image.Disk:
		c.Disk = img.Data
	case image.State:
		c.Snapshot = machine.ImportState(img.Data)
	default:
		c.Kernel, c.Initrd = img.Data, img.Initrd
	}
	return c
}

// booting is a machine that boots.
type booting struct {
	m     *machine.Machine
	loop  *loop
	find  *console
	began time.Time
	limit time.Duration
	calls chan func() error

	reported time.Time
	conn     net.Conn // to the client, when the agent is ready
}

func (b *booting) run(ctx context.Context) (*machine.Snapshot, error) {
	input := make(chan []byte, 1)
	b.loop.input = input
	// The client has one end of this pipe; the machine's serial port is relayed to the other.
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

// setUp sends Setup to the agent and runs a shell once, so that the pages of its programs are in
// the guest's page cache.
func setUp(ctx context.Context, conn net.Conn) error {
	box, err := client.New(ctx, conn, client.Options{})
	if err != nil {
		return err
	}
	plan := wire.Setup{Capabilities: wire.AllCapabilities, Dir: sandbar.DefaultDir, Env: []string{"HOME=" + sandbar.DefaultDir,
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "TMPDIR=/tmp"}}
	if _, _, err := box.Setup(ctx, &plan); err != nil {
		return err
	}
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "ls / >/dev/null; echo"}}, driver.Stdio{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return nil // an image without a shell is accepted
	}
	_, err = p.Wait()
	return err
}

func (b *booting) onConsole(p []byte) error { return b.find.received(p, b.m.Clock()) }

func (b *booting) onOutput(p []byte) error {
	if b.find.stage != stageReady {
		return nil // not yet from the agent
	}
	_, err := b.conn.Write(p)
	return err
}

// progressEvery is the interval of progress reports.
const progressEvery = 5 * time.Second

// onStep checks the boot timeout and the console after each step.
func (b *booting) onStep() error {
	passed := time.Since(b.began)
	if passed > b.limit {
		return b.timeoutError()
	}
	if time.Since(b.reported) > progressEvery {
		b.reported = time.Now()
		fmt.Fprintf(os.Stderr, "%s%d s\n", progress, int(passed.Seconds()))
	}
	return b.find.answerPrompt(b.m.Clock())
}

// progress begins a progress line on standard error.
const progress = "booting: "

// errNoOutput is the error for a machine without any console output.
var errNoOutput = errors.New("nothing came from the console")

// timeoutError returns the error for the end of the boot timeout, which depends on how far the boot
// is.
func (b *booting) timeoutError() error {
	limit := b.limit.Round(time.Second)
	switch {
	case b.find.stage == stageReady:
		return fmt.Errorf("the agent in the machine did not answer within %v", limit)
	case b.find.lastOutput <= 0:
		return fmt.Errorf("%w within %v: the machine must use the first serial port (ttyS0) as its console", errNoOutput, limit)
	}
	return fmt.Errorf("there was neither Sandbar's guest program nor a login or shell on the machine's console within %v", limit)
}
