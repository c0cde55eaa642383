package oci

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

// resources are what one sandbox holds on the host. Init is the stage, which becomes the runtime: PID 1
// of a namespace that the container is within. When Init has been waited for, no process of either is
// left, nor a mount, nor a file.
type resources struct {
	sandboxes.Resources
	d      *Driver
	output *runtimeOutput
}

// build builds the sandbox.
func (r *resources) build(ctx context.Context, s sandbar.Spec) (_ *client.Sandbox, err error) {
	if r.Image, err = r.d.OpenImage(ctx, s.Image); err != nil {
		return nil, err
	}
	p, err := r.d.plan(r.ID, s, r.Image)
	if err != nil {
		return nil, err
	}
	if err := r.TakeRange(); err != nil {
		return nil, err
	}
	limits := hostenv.GroupLimits(r.d.Groups.Caps(), s.Limits, runtimeTasks)
	limits.Memory = 0 // see limit
	if r.d.runtime.guestKernel() {
		limits.PIDs = 0 // the programs are not processes of the host's kernel
	}
	if err := r.TakeGroup(limits); err != nil {
		return nil, err
	}
	conn, err := r.boot(p)
	if err != nil {
		return nil, err
	}
	uid, gid := r.HostIDs(int(p.setup.UID))
	sandbox, err := client.New(ctx, conn, client.Options{
		Destroy: r.Destroy, Usage: r.Usage(), Enforced: r.d.Facts.Enforced,
		UID: uid, GID: gid, ChownPipes: r.d.IDs.Ranged, UsageOnly: r.d.runtime.guestKernel(),
	})
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	_, _, err = sandbox.Setup(ctx, p.setup)
	if err == nil {
		err = r.limit(s.Limits)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return sandbox, nil
}

// boot starts the stage, sends it the plan and returns the connection, which the stage passes on to
// the agent.
func (r *resources) boot(p *plan) (net.Conn, error) {
	conn, err := r.Boot(r.d.IDs.Request(agent.ModeStage, r.Range, 0))
	if err != nil {
		return nil, err
	}
	if err := r.prepare(conn, p); err != nil {
		conn.Close()
		return nil, err
	}
	if !r.d.runtime.passes() {
		conn = struct{ net.Conn }{conn} // hides the ability to pass descriptors
	}
	return conn, nil
}

// prepare sends the plan with all that it needs.
func (r *resources) prepare(conn net.Conn, p *plan) error {
	listen, speak, err := os.Pipe()
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	defer speak.Close()
	r.output = readOutput(listen)
	r.Ended = r.output.close
	fds := []int{int(r.d.runtimeFile.Fd()), int(speak.Fd())}
	if r.Image != nil && r.d.IDs.Ranged {
		root, err := r.Init.Show(r.Image.Dir)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		fds = append(fds, root)
	}
	return client.Prepare(conn, p.stage, fds...)
}

// limit sets the limits of the group: those of the programs, plus what the runtime and the agent hold
// now. No program runs yet.
func (r *resources) limit(l sandbar.Limits) error {
	if r.Group == nil {
		return nil
	}
	now, err := r.Group.Stats()
	if err != nil {
		return err
	}
	r.Baseline = now.MemoryCurrent
	if l.Memory > 0 && r.d.Groups.Caps().Memory != sandbar.EnforcedNone {
		if err := r.Group.SetMemory(l.Memory + r.Baseline + r.d.slack(l.Memory)); err != nil {
			return err
		}
	}
	if l.PIDs > 0 && !r.d.runtime.guestKernel() {
		return r.Group.SetPIDs(l.PIDs + now.PIDsCurrent)
	}
	return nil
}

// explain adds the runtime's error message to an error.
func (r *resources) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil || sandbar.CodeOf(err) != sandbar.Internal || r.output == nil {
		return err
	}
	if text := r.output.wait(ctx); text != "" {
		return &sandbar.Error{Code: sandbar.Unsupported, Err: err,
			Message: string(r.d.runtime.kind) + " did not make the container: " + sandbar.Quote(text, 500),
			Fix:     "run `sandbar doctor`; another runtime, or another driver, may work here"}
	}
	return err
}

// runtimeOutput reads the standard error output of a runtime. It keeps the first maxRuntimeOutput bytes
// and discards the rest: the container's first program inherits that output.
type runtimeOutput struct {
	from *os.File
	done chan struct{}
	mu   sync.Mutex
	text []byte
}

// maxRuntimeOutput is how much a runtimeOutput keeps, in bytes.
const maxRuntimeOutput = 4 << 10

// readOutput reads from a pipe, whose reading end it owns.
func readOutput(from *os.File) *runtimeOutput {
	c := &runtimeOutput{from: from, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		var buf [512]byte
		for {
			n, err := from.Read(buf[:])
			c.mu.Lock()
			c.text = append(c.text, buf[:min(n, maxRuntimeOutput-len(c.text))]...)
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// runtimeOutputTime bounds the wait for the error message of a runtime that has failed.
const runtimeOutputTime = 2 * time.Second

// wait returns the text so far when the output has ended, after runtimeOutputTime, or when ctx ends.
func (c *runtimeOutput) wait(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, runtimeOutputTime)
	defer cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(string(c.text))
}

// close ends the reading. The runtime has ended.
func (c *runtimeOutput) close() error {
	c.from.Close()
	<-c.done
	return nil
}
