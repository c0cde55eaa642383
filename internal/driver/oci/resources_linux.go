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

// resources are the resources of one sandbox on the host. Init is the stage, which later executes
// the runtime. It is PID 1 of a PID namespace that contains the container, and its mount namespace
// contains all files. So nothing is left of either when Init has ended.
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
		Destroy: r.Destroy, Usage: r.Usage(), Use: r.Use(), Enforced: r.d.Facts.Enforced,
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

// boot starts the stage, sends the plan to it, and returns the connection. The agent inherits the
// other end from the stage.
func (r *resources) boot(p *plan) (net.Conn, error) {
	conn, err := r.Boot(r.d.IDs.Request(agent.ModeStage, r.Range, 0))
	if err != nil {
		return nil, err
	}
	if err := r.prepare(conn, p); err != nil {
		conn.Close()
		return nil, err
	}
	if !r.d.runtime.passesFDs() {
		conn = struct{ net.Conn }{conn} // hides the ability to pass descriptors
	}
	return conn, nil
}

// prepare sends the stage the plan and its descriptors: the runtime's program, a pipe for the
// runtime's error output and, if there is an image, its mount.
func (r *resources) prepare(conn net.Conn, p *plan) error {
	listen, speak, err := os.Pipe()
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
	}
	defer speak.Close()
	r.output = readOutput(listen)
	r.OnEnd = r.output.close
	fds := []int{int(r.d.runtimeFile.Fd()), int(speak.Fd())}
	if r.Image != nil && r.d.IDs.Ranged {
		root, err := r.Init.IDMappedMount(r.Image.Dir)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		fds = append(fds, root)
	}
	return client.Prepare(conn, p.stage, fds...)
}

// limit sets the limits of the cgroup: those of the programs, plus the current usage of the runtime
// and the agent. It must be called before the first program starts.
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
		if err := r.Group.SetMemory(l.Memory + r.Baseline + r.d.memorySlack(l.Memory)); err != nil {
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
			Message: string(r.d.runtime.kind) + " could not create the container: " + sandbar.Quote(text, 500),
			Fix:     "run `sandbar doctor`; another runtime, or another driver, may work here"}
	}
	return err
}

// runtimeOutput reads the standard error output of a runtime. It keeps the first maxRuntimeOutput
// bytes and discards the rest: the container's first program inherits that output.
type runtimeOutput struct {
	from *os.File
	done chan struct{}
	mu   sync.Mutex
	text []byte
}

// maxRuntimeOutput is the size limit of a runtimeOutput, in bytes.
const maxRuntimeOutput = 4 << 10

// readOutput starts reading from a pipe. It takes ownership of from.
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

// wait waits until the output ends, runtimeOutputTime has passed, or ctx ends. It returns the text
// read so far.
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

// close stops the reading. It is called after the runtime has ended.
func (c *runtimeOutput) close() error {
	c.from.Close()
	<-c.done
	return nil
}
