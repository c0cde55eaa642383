package e2b

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

const (
	// createGrace is the additional wait for a creation after its caller has left.
	createGrace = 2 * time.Second
	// helloBound bounds the start of the agent.
	helloBound = 30 * time.Second
	// root is the user of the agent.
	root = "root"
)

// resources has the parts of one sandbox. Its fields are set as the parts are created.
type resources struct {
	d  *Driver
	id sandbar.ID
	// asked is closed after the service has answered the creation; nil before the request. box is
	// set before that.
	asked chan struct{}
	box   *box
	lost  bool // the service may have created a sandbox whose id is unknown
	relay *relay
	// end is closed when the sandbox is released; extending are the goroutines that it ends.
	end       chan struct{}
	extending sync.WaitGroup
}

// create creates the sandbox. On an error the caller must call undo.
func (b *resources) create(ctx context.Context, s sandbar.Spec) (*client.Sandbox, error) {
	template := s.Image
	if template == "" || template == sandbar.ImageHost {
		template = b.d.service.template
	}
	err := b.ask(ctx, newSandbox{Template: template, Timeout: int64(b.d.service.timeout / time.Second), Secure: true, Internet: s.Network == sandbar.NetworkOutbound,
		Metadata: map[string]string{metaDriver: Name, metaOwner: b.d.owner, metaSandbox: string(b.id)}})
	if err != nil {
		if e := sandbar.AsError(err); e.Code == sandbar.NotFound {
			e.Field, e.Fix = "image", "give the name of a template of the service"
		}
		return nil, err
	}
	b.extending.Go(b.extend)
	file := "/tmp/.sandbar-" + string(b.id) + "/" + agent.Name
	var uploaded error
	var uploading sync.WaitGroup
	uploading.Go(func() { uploaded = b.box.upload(ctx, file, root, b.d.program) })
	t, err := b.box.examine(ctx)
	uploading.Wait()
	if err = errors.Join(err, uploaded); err != nil {
		return nil, sandbar.AsError(err)
	}
	return b.startAgent(ctx, s, t, file)
}

// ask makes the service create the sandbox. A service completes a creation even if the client
// leaves. So after the end of ctx the call continues.
func (b *resources) ask(ctx context.Context, n newSandbox) error {
	b.asked = make(chan struct{})
	var failed error
	go func() {
		defer close(b.asked)
		b.box, b.lost, failed = b.d.service.create(context.WithoutCancel(ctx), n)
	}()
	select {
	case <-b.asked:
		return failed
	case <-ctx.Done():
	}
	select {
	case <-b.asked:
	case <-time.After(createGrace):
	}
	return sandbar.Errorf(sandbar.CodeOfContext(ctx), "creating a sandbox: %w", ctx.Err())
}

// extend extends the sandbox's time until it is released. If the service does not answer for the
// whole time, it removes the sandbox, and the agent's connection ends.
func (b *resources) extend() {
	every := time.NewTicker(b.d.service.timeout / 4)
	defer every.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-b.end:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		select {
		case <-every.C:
		case <-b.end:
			return
		}
		if err := b.box.extend(ctx, b.box.id); err != nil && ctx.Err() == nil {
			b.d.log.Warn("the time of a sandbox could not be extended", "sandbox", b.id, "error", err)
		}
	}
}

// startAgent starts the agent, and makes it confine itself and its programs.
func (b *resources) startAgent(ctx context.Context, s sandbar.Spec, t template, file string) (*client.Sandbox, error) {
	setup, err := b.d.setup(s, t, file)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, helloBound)
	defer cancel()
	b.relay, err = b.box.open(bounded, "starting the agent", root, processConfig{Cmd: "/bin/sh", Args: startArgs(t, file), Envs: agentEnv(), Cwd: "/"})
	if err != nil {
		return nil, err
	}
	sb, err := client.New(bounded, b.relay, client.Options{Destroy: b.destroy, Enforced: b.d.caps.Enforced})
	if err != nil {
		return nil, b.agentError(ctx, err)
	}
	if _, _, err = sb.Setup(bounded, setup); err != nil {
		_ = b.relay.Close()
		<-sb.Dead() // the reader goroutine has ended
		return nil, b.agentError(ctx, err)
	}
	return sb, nil
}

// setup returns the plan of a sandbox, whose agent is in a file. RLIMIT_RSS is the process tag,
// because a Sandbar as the service uses RLIMIT_LOCKS for its own.
func (d *Driver) setup(s sandbar.Spec, t template, file string) (*wire.Setup, error) {
	limits, err := policy.Rlimits(s.Limits, policy.RlimitOptions{Enforced: d.caps.Enforced, Ceiling: t.ceiling})
	return &wire.Setup{
		Prebuilt: true, Dir: sandbar.DefaultDir, UID: t.uid, GID: t.gid, Remove: []string{file, path.Dir(file)},
		TagResource: uint32(policy.TagRSS), Seccomp: d.filters.all, ProgramSeccomp: d.filters.programs, Landlock: policy.RootLandlock(),
		Env: environment(t.env, s.Env), Rlimits: limits,
	}, err
}

// startArgs returns the arguments of the shell that starts the agent in a file.
func startArgs(t template, file string) []string {
	owner := strconv.FormatUint(uint64(t.uid), 10) + ":" + strconv.FormatUint(uint64(t.gid), 10)
	return []string{"-c", startScript, "sh", file, sandbar.DefaultDir, owner}
}

// startScript starts the agent $1 with the working directory $2, which is of the user $3.
const startScript = `mkdir -p "$2" && if [ "$(id -u)" = 0 ]; then chown "$3" "$2"; fi && chmod 700 "$1" && exec "$1" ` + agent.ModeStdio

// agentEnv tunes the agent's Go runtime: few threads and caches, rare garbage collection.
func agentEnv() map[string]string {
	return map[string]string{"GOMAXPROCS": "2", "GOGC": "25", "GODEBUG": "containermaxprocs=0,updatemaxprocs=0", "GOMEMLIMIT": "off", "GOTRACEBACK": "single"}
}

// environment returns the initial environment of every program: the template's, that of all
// sandboxes, and the Spec's.
func environment(template []string, spec map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	env = append(env, template...)
	env = append(env, "HOME="+sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp", "TERM=dumb")
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

// template has the properties of a template's default user.
type template struct {
	uid, gid uint32
	env      []string
	limits   map[string]uint64 // hard limits, by their names in /proc/PID/limits
}

// examineScript prints them.
const examineScript = `uname -m; id -u; id -g; cat /proc/self/limits; printf '\0'; exec env -0`

// examine determines the properties of the sandbox's template.
func (b *box) examine(ctx context.Context) (template, error) {
	out, err := b.run(ctx, "examining the template", "", "/bin/sh", "-c", examineScript)
	if err != nil {
		return template{}, err
	}
	return parseTemplate(out)
}

func parseTemplate(out []byte) (t template, err error) {
	head, env, _ := bytes.Cut(out, []byte{0})
	lines := strings.Split(string(head), "\n")
	if len(lines) < 4 {
		return t, sandbar.Errorf(sandbar.Unsupported, "the template has no usable shell: /bin/sh, uname, id, cat and env are needed")
	}
	if machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; lines[0] != machine {
		return t, &sandbar.Error{Code: sandbar.Unsupported, Message: "the service's processor is " + sandbar.Quote(lines[0], 40) + ", and this build's agent is for " + machine,
			Fix: "run the daemon on a machine with the service's kind of processor"}
	}
	uid, uidErr := strconv.ParseUint(lines[1], 10, 32)
	gid, gidErr := strconv.ParseUint(lines[2], 10, 32)
	if uidErr != nil || gidErr != nil {
		return t, sandbar.Errorf(sandbar.Unsupported, "the template's default user has no number")
	}
	if uid == 0 {
		return t, &sandbar.Error{Code: sandbar.Unsupported, Message: "the default user of the template is root, whose processes no limit counts",
			Fix: "use a template whose default user is another one, as \"user\" of E2B's own"}
	}
	t = template{uid: uint32(uid), gid: uint32(gid), limits: map[string]uint64{}}
	for _, line := range lines[3:] {
		if len(line) < limitColumn {
			continue
		}
		if f := strings.Fields(line[limitColumn:]); len(f) >= 2 {
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				t.limits[strings.TrimSpace(line[:limitColumn])] = n
			}
		}
	}
	for _, v := range strings.Split(string(env), "\x00") {
		name, _, ok := strings.Cut(v, "=")
		if ok && name != "" && !strings.HasPrefix(name, "E2B_") && !slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name) {
			t.env = append(t.env, v)
		}
	}
	return t, nil
}

// limitColumn is the width of the names in /proc/PID/limits.
const limitColumn = 26

// ceiling returns the hard limit of a resource, which an agent without rights cannot exceed.
func (t template) ceiling(resource uint32) uint64 {
	names := [...]string{2: "Max data size", 3: "Max stack size", 4: "Max core file size", 6: "Max processes", 7: "Max open files", 8: "Max locked memory",
		11: "Max pending signals", 12: "Max msgqueue size", 13: "Max nice priority", 14: "Max realtime priority"}
	if int(resource) < len(names) {
		if n, ok := t.limits[names[resource]]; ok {
			return n
		}
	}
	return policy.RlimitInfinity
}

// agentError returns the error for an agent that does not answer correctly.
func (b *resources) agentError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the agent: %w", ctx.Err())
	}
	e := *sandbar.AsError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Message = sandbar.Unavailable, "the agent in a new sandbox of the E2B service does not answer"
	case e.Code == sandbar.Gone || e.Code == sandbar.Internal:
		e.Code, e.Message, e.Fix = sandbar.Unavailable, "the connection to the agent in a new sandbox of the E2B service ended before it was ready", "try again"
		if why := b.relay.ended(); why != nil && why != io.EOF && why != net.ErrClosed {
			e.Message += ": " + why.Error()
		}
	}
	if said := strings.TrimSpace(b.relay.Stderr()); said != "" {
		e.Message += "; the sandbox says " + sandbar.Quote(said, maxText)
	}
	return &e
}

// destroy ends the sandbox.
func (b *resources) destroy(ctx context.Context) error {
	if err := b.d.service.kill(ctx, b.box.id); err != nil {
		return err
	}
	_ = b.relay.Close()
	b.release()
	return nil
}

// release releases the sandbox's local resources.
func (b *resources) release() {
	close(b.end)
	b.extending.Wait()
	b.d.registry.Release(string(b.id))
	b.d.service.idleIfUnused(&b.d.registry)
}

// idleIfUnused closes idle connections if there is no sandbox.
func (s *service) idleIfUnused(r *driver.Registry) {
	if len(r.IDs()) == 0 {
		s.idle()
	}
}

// undo removes a sandbox whose creation failed, even after the end of ctx. The sweeper removes what
// the service does not remove now.
func (b *resources) undo(ctx context.Context) {
	if b.relay != nil {
		_ = b.relay.Close()
	}
	if b.asked != nil {
		if err := b.d.sweeper.Undo(ctx, b.asked, b.remove); err != nil {
			b.d.log.Warn("a sandbox that failed could not be removed yet", "sandbox", b.id, "error", err)
		}
	}
	b.release()
}

// remove removes the sandbox of a creation that was answered.
func (b *resources) remove(ctx context.Context) error {
	switch {
	case b.box != nil:
		return b.d.service.kill(ctx, b.box.id)
	case b.lost:
		return errors.New("the answer to its creation was lost")
	}
	return nil
}
