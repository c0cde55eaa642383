package function

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// createRequest has the parameters of sandbox::create and of the first step of sandbox::run.
type createRequest struct {
	raw     request
	image   string
	cpus    *uint32
	memory  *uint32 // MiB
	name    *string
	network *bool
	idle    *uint64 // seconds
	env     environment
}

// create implements sandbox::create.
func (f *Functions) create(ctx context.Context, data json.RawMessage) (any, error) {
	var req createRequest
	var err error
	req.raw, err = decode(data, "CreateRequest", must(text("image", &req.image)),
		optional(number[uint32], "cpus", &req.cpus), optional(number[uint32], "memory_mb", &req.memory),
		optional(text, "name", &req.name), optional(boolean, "network", &req.network),
		optional(number[uint64], "idle_timeout_secs", &req.idle), variables("env", &req.env))
	if err != nil {
		return nil, err
	}
	b, note, err := f.make(ctx, req)
	if err != nil {
		return nil, err
	}
	result := map[string]any{"sandbox_id": b.id, "image": b.image}
	if note != "" {
		result["note"] = note
	}
	return result, nil
}

// make creates a sandbox. It checks in the order that clients expect: capacity, image, caps, root
// file system, environment.
func (f *Functions) make(ctx context.Context, req createRequest) (b *sandboxEntry, note string, err error) {
	if err := f.reserve(); err != nil {
		return nil, "", err
	}
	defer f.release()
	image, ok := f.opt.Config.Find(req.image)
	if !ok {
		return nil, "", f.unknownImage(req)
	}
	if err := f.checkCaps(req); err != nil {
		return nil, "", err
	}
	root, err := f.root(ctx, image)
	if err != nil {
		return nil, "", err
	}
	if err := req.env.check(); err != nil {
		return nil, "", err
	}
	spec, err := f.spec(engine.Client(ctx), req, root)
	if err != nil {
		return nil, "", err
	}
	sandbox, err := f.opt.Engine.Create(ctx, spec)
	if err != nil {
		return nil, "", createFailure(err)
	}
	b = &sandboxEntry{id: sandbox.ID().UUID(), name: req.name, image: req.image, created: time.Now(), sandbox: sandbox}
	if root.Note != "" {
		f.opt.Logger.InfoContext(ctx, "iii: a sandbox runs on another image than its name says", "sandbox", sandbox.ID(), "image", req.image, "note", root.Note)
	}
	if !f.keep(b) {
		f.remove(context.Background(), b)
		return nil, "", fail(S300, "the server is shutting down")
	}
	return b, root.Note, nil
}

// unknownImage returns the error for an image that does not exist or is not allowed, which callers
// cannot distinguish.
func (f *Functions) unknownImage(req createRequest) error {
	allowed := f.opt.Config.Allowed()
	list := "no image is allowed on this server: the operator has to name some in image_allowlist"
	if len(allowed) > 0 {
		list = "valid images are " + quoted(allowed) + "; the operator can add a custom image"
	}
	e := &failure{code: S100, message: "image " + quote(req.image) + " not in catalog; " + list + " (see S100 docs)"}
	if near := f.opt.Config.Suggest(req.image); near != "" && req.raw != nil {
		e = e.with(req.raw.fixed(map[string]any{"image": near}), "the same call with the image that was probably meant")
	}
	return e
}

// quoted formats a list of names: 'python', 'node' and 'app'.
func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = quote(n)
	}
	if len(q) == 1 {
		return q[0]
	}
	return strings.Join(q[:len(q)-1], ", ") + " and " + q[len(q)-1]
}

// checkCaps refuses resources beyond the image's caps, CPUs first.
func (f *Functions) checkCaps(req createRequest) error {
	for _, x := range []struct {
		name  string
		asked *uint32
	}{{"cpus", req.cpus}, {"memory_mb", req.memory}} {
		if x.asked != nil && *x.asked == 0 {
			return fail(S001, "%s must be at least 1", x.name).with(req.raw.fixed(nil, x.name), "the same call with the default")
		}
	}
	caps, ok := f.opt.Config.PerImageCaps[req.image]
	if !ok {
		return nil
	}
	if n := value(req.cpus, f.opt.Config.DefaultCPUs); n > caps.MaxCPUs {
		return capped(req, "cpus", n, caps.MaxCPUs)
	}
	if n := value(req.memory, f.opt.Config.DefaultMemoryMB); n > caps.MaxMemoryMB {
		return capped(req, "memory_mb", n, caps.MaxMemoryMB)
	}
	return nil
}

func capped(req createRequest, name string, asked, most uint32) error {
	e := fail(S400, "%s=%d exceeds per-image cap %d", name, asked, most)
	if most > 0 && req.raw != nil {
		return e.with(req.raw.fixed(map[string]any{name: most}), "the same call with the most that is allowed")
	}
	return e
}

func value[T any](v *T, missing T) T {
	if v == nil {
		return missing
	}
	return *v
}

// root finds an image's root file system, and pulls it if necessary and allowed.
func (f *Functions) root(ctx context.Context, image settings.Image) (Root, error) {
	root, err := f.opt.Images.Find(ctx, image)
	switch {
	case err == nil:
		return root, nil
	case sandbar.CodeOf(err) == sandbar.NotFound && !f.opt.Config.AutoInstall:
		return Root{}, &failure{code: S101, message: "rootfs missing on disk for image " + quote(image.Name) +
			". Run: sandbar images pull " + image.OCIRef + " (see S101 docs)"}
	case sandbar.CodeOf(err) == sandbar.NotFound:
		root, err = f.opt.Images.Pull(ctx, image)
	}
	if err != nil {
		return Root{}, &failure{code: S102, message: "auto-install failed for image " + quote(image.Name) + ": " + sandbar.AsError(err).Error()}
	}
	return root, nil
}

// flow is one queue for all callers of this protocol, because callers behind an engine cannot be
// distinguished.
const flow = "iii"

// client is the client of all calls: one of the default tenant, which does not see other tenants.
var client = sandbar.Client{Role: sandbar.RoleUser, Flow: flow}

// asClient returns a context with the client of all calls.
func asClient(ctx context.Context) context.Context { return engine.WithClient(ctx, client) }

// enforced returns what the driver of the sandboxes enforces.
func (f *Functions) enforced() sandbar.Enforcements {
	for _, c := range f.opt.Engine.Drivers() {
		if c.Name == f.opt.Driver {
			return c.Enforced
		}
	}
	return f.opt.Engine.Caps().Enforced
}

// spec returns the engine's Spec. Defaults that this host cannot enforce are left to the engine,
// since the caller has not requested them. CPUs and memory beyond the host's are reduced to the
// host's, which makes no difference to a program.
func (f *Functions) spec(caller sandbar.Client, req createRequest, root Root) (sandbar.Spec, error) {
	c, held := f.opt.Config, f.enforced()
	idle := settings.Seconds(value(req.idle, c.DefaultIdleTimeoutSecs))
	spec := sandbar.Spec{Driver: f.opt.Driver, Client: caller, Image: root.Image, Name: value(req.name, ""), Env: req.env.pairs, IdleTimeout: max(idle, time.Second)}
	if req.cpus != nil || held.CPUs != sandbar.EnforcedNone {
		spec.Limits.CPUs = float64(min(value(req.cpus, c.DefaultCPUs), uint32(runtime.NumCPU())))
	}
	if req.memory != nil || held.Memory != sandbar.EnforcedNone {
		spec.Limits.Memory = int64(value(req.memory, c.DefaultMemoryMB)) << 20
		if most := f.opt.HostMemory; most > 0 {
			spec.Limits.Memory = min(spec.Limits.Memory, most)
		}
	}
	if value(req.network, false) {
		if f.opt.Network == "" {
			return spec, fail(S300, "network: true is not possible: this server gives sandboxes no network").
				with(req.raw.fixed(map[string]any{"network": false}), "the same call without a network")
		}
		spec.Network = f.opt.Network
	}
	return spec, nil
}
