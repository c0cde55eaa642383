package mcp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

type createArgs struct {
	Name    string            `json:"name,omitempty" jsonschema:"label for people"`
	Image   string            `json:"image,omitempty" jsonschema:"root file system; default: this machine's programs"`
	Driver  string            `json:"driver,omitempty" jsonschema:"driver that isolates the sandbox; default: the operator's"`
	Network string            `json:"network,omitempty" jsonschema:"none (default) or outbound"`
	Memory  int64             `json:"memory_mib,omitempty" jsonschema:"memory limit in MiB"`
	Disk    int64             `json:"disk_mib,omitempty" jsonschema:"disk limit in MiB"`
	CPUs    float64           `json:"cpus,omitempty" jsonschema:"processors"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"environment variables"`
	Default bool              `json:"default,omitempty" jsonschema:"use it for calls without the argument sandbox"`
}

type sandboxResult struct {
	Sandbox string `json:"sandbox" jsonschema:"id of the sandbox"`
	Name    string `json:"name,omitempty"`
	Image   string `json:"image"`
	Driver  string `json:"driver"`
	Network string `json:"network"`
	Memory  int64  `json:"memory_mib,omitempty"`
	Created string `json:"created"`
	Default bool   `json:"default" jsonschema:"used for calls without the argument sandbox"`
}

// resultOf describes a sandbox.
func (x *session) resultOf(b *box) sandboxResult {
	spec := b.Info().Spec
	x.mu.Lock()
	defer x.mu.Unlock()
	return sandboxResult{Sandbox: string(b.ID()), Name: spec.Name, Image: spec.Image, Driver: spec.Driver, Network: string(spec.Network),
		Memory: max(spec.Limits.Memory, 0) >> 20, Created: b.created.UTC().Format(time.RFC3339), Default: x.main == b}
}

// maxMiB bounds a number of MiB, so that its bytes are an int64.
const maxMiB = 1 << 40

func (s *Server) createSandbox(ctx context.Context, c call, in createArgs) (*sdk.CallToolResult, sandboxResult, error) {
	var none sandboxResult
	if err := checkSize("name", len(in.Name), maxName, ""); err != nil {
		return nil, none, err
	}
	switch network := sandbar.Network(in.Network); {
	case network != "" && network != sandbar.NetworkNone && network != sandbar.NetworkOutbound:
		return nil, none, invalid("network", "network "+sandbar.Quote(in.Network, 40)+" is unknown", "allowed: none, outbound")
	case in.Memory < 0 || in.Memory > maxMiB:
		return nil, none, invalid("memory_mib", "memory_mib is out of range", "")
	case in.Disk < 0 || in.Disk > maxMiB:
		return nil, none, invalid("disk_mib", "disk_mib is out of range", "")
	case in.CPUs < 0:
		return nil, none, invalid("cpus", "cpus is out of range", "")
	}
	b, err := c.session.create(ctx, sandbar.Spec{Name: in.Name, Image: in.Image, Driver: in.Driver, Network: sandbar.Network(in.Network), Env: in.Env,
		Limits: sandbar.Limits{Memory: in.Memory << 20, Disk: in.Disk << 20, CPUs: in.CPUs}}, in.Default)
	if err != nil {
		return nil, none, err
	}
	return text("created %s; name it in the argument sandbox of other tools", b.ID()), c.session.resultOf(b), nil
}

type noArgs struct{}

type sandboxesResult struct {
	Sandboxes []sandboxResult  `json:"sandboxes"`
	Snapshots []snapshotResult `json:"snapshots"`
}

func (s *Server) listSandboxes(_ context.Context, c call, _ noArgs) (*sdk.CallToolResult, sandboxesResult, error) {
	out := sandboxesResult{Sandboxes: []sandboxResult{}, Snapshots: []snapshotResult{}}
	var t strings.Builder
	all, _ := c.session.list()
	for _, b := range all {
		r := c.session.resultOf(b)
		out.Sandboxes = append(out.Sandboxes, r)
		fmt.Fprintf(&t, "%s image %s, driver %s, network %s", r.Sandbox, r.Image, r.Driver, r.Network)
		if r.Name != "" {
			fmt.Fprintf(&t, ", name %q", r.Name)
		}
		if r.Default {
			t.WriteString(", default")
		}
		t.WriteByte('\n')
	}
	c.session.mu.Lock()
	saved := maps.Clone(c.session.snapshots)
	c.session.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(saved)) {
		r := snapshotResult{Snapshot: string(id), Sandbox: string(saved[id].of), Created: saved[id].time.UTC().Format(time.RFC3339)}
		out.Snapshots = append(out.Snapshots, r)
		fmt.Fprintf(&t, "snapshot %s of %s\n", r.Snapshot, r.Sandbox)
	}
	if t.Len() == 0 {
		t.WriteString("[no sandboxes; the first call of another tool makes one]\n")
	}
	return text("%s", t.String()), out, nil
}

type stopArgs struct {
	Sandbox string `json:"sandbox"`
}

type stopResult struct {
	Stopped string `json:"stopped"`
}

func (s *Server) stopSandbox(ctx context.Context, c call, in stopArgs) (*sdk.CallToolResult, stopResult, error) {
	x, id := c.session, sandbar.ID(in.Sandbox)
	x.mu.Lock()
	_, saved := x.snapshots[id]
	x.mu.Unlock()
	if !saved && !x.forget(id) {
		return nil, stopResult{}, noSandbox(in.Sandbox)
	}
	if err := x.remove(ctx, id); err != nil {
		return nil, stopResult{}, err
	}
	x.mu.Lock()
	delete(x.snapshots, id)
	x.mu.Unlock()
	return text("stopped %s", id), stopResult{in.Sandbox}, nil
}

type exposeArgs struct {
	Port    int    `json:"port" jsonschema:"TCP port of a server in the sandbox"`
	Public  bool   `json:"public,omitempty" jsonschema:"everybody who knows the URL may open it, without a token"`
	Sandbox string `json:"sandbox,omitempty"`
}

type exposeResult struct {
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
	URL     string `json:"url"`
	Public  bool   `json:"public"`
}

func (s *Server) exposePort(ctx context.Context, c call, in exposeArgs) (*sdk.CallToolResult, exposeResult, error) {
	out := exposeResult{Port: in.Port, Public: in.Public}
	if s.options.Preview == nil {
		return nil, out, &sandbar.Error{Code: sandbar.Unsupported, Message: "this server gives ports no URLs", Fix: "use a daemon: sandbar serve"}
	}
	if in.Port < 1 || in.Port > 65535 {
		return nil, out, invalid("port", fmt.Sprintf("port %d is out of range", in.Port), "allowed: 1 to 65535")
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	origin, _ := ctx.Value(originKey{}).(*http.Request)
	if origin != nil {
		origin = origin.WithContext(ctx)
	}
	if out.URL, err = s.options.Preview(origin, b.ID(), in.Port, in.Public); err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	return text("%s", out.URL), out, nil
}

type snapshotArgs struct {
	Sandbox string `json:"sandbox,omitempty"`
}

type snapshotResult struct {
	Snapshot string `json:"snapshot" jsonschema:"id of the snapshot"`
	Sandbox  string `json:"sandbox" jsonschema:"id of the sandbox that was saved"`
	Created  string `json:"created"`
}

// snapshot saves a copy of a sandbox.
func (s *Server) snapshot(ctx context.Context, c call, in snapshotArgs) (*sdk.CallToolResult, snapshotResult, error) {
	x := c.session
	var out snapshotResult
	b, err := x.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	x.mu.Lock()
	full := len(x.snapshots)+x.saving >= maxSnapshots
	if !full {
		x.saving++
	}
	x.mu.Unlock()
	if full {
		return nil, out, &sandbar.Error{Code: sandbar.Exhausted, Message: "this session has " + count(maxSnapshots, "snapshot") + ", which is all that it may have", Fix: "remove one with stop_sandbox"}
	}
	id, err := s.save(ctx, b.ID())
	saved := snapshot{b.ID(), time.Now()}
	x.mu.Lock()
	x.saving--
	if err == nil {
		x.snapshots[id] = saved
	}
	x.mu.Unlock()
	if err != nil {
		return nil, out, cannotSave(err)
	}
	out = snapshotResult{string(id), string(b.ID()), saved.time.UTC().Format(time.RFC3339)}
	return text("saved %s as snapshot %s", b.ID(), id), out, nil
}

// save makes a copy of a sandbox and pauses it. On an error there is no copy. The end of a call
// does not cut the pause, so that the copy is either the session's snapshot or removed.
func (s *Server) save(ctx context.Context, source sandbar.ID) (sandbar.ID, error) {
	copies, err := s.engine.Fork(ctx, source, 1)
	if err != nil {
		return "", err
	}
	id := copies[0].ID()
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	if err := s.engine.Pause(saving, id); err != nil {
		removing, cancel := context.WithTimeout(context.Background(), removalTime)
		defer cancel()
		s.engine.Stop(removing, id) // the error of Pause is the one that matters
		return "", err
	}
	return id, nil
}

// saveTime bounds the save of a snapshot.
const saveTime = 2 * time.Minute

// cannotSave adds the next step to the error of a driver that has no saved states.
func cannotSave(err error) error {
	if e := *sandbar.AsError(err); e.Code == sandbar.Unsupported && e.Fix == "" {
		e.Fix = "copy the files that matter with download, or use the driver native with control groups, or vm (docs/snapshots.md)"
		return &e
	}
	return err
}

type restoreArgs struct {
	Snapshot string `json:"snapshot" jsonschema:"id of a snapshot of this session"`
	Default  bool   `json:"default,omitempty" jsonschema:"use the new sandbox for calls without the argument sandbox"`
}

// restore makes a sandbox from a snapshot.
func (s *Server) restore(ctx context.Context, c call, in restoreArgs) (*sdk.CallToolResult, sandboxResult, error) {
	x, id := c.session, sandbar.ID(in.Snapshot)
	var none sandboxResult
	x.mu.Lock()
	_, ok := x.snapshots[id]
	x.mu.Unlock()
	if !ok {
		return nil, none, &sandbar.Error{Code: sandbar.NotFound, Field: "snapshot", Message: "this session has no snapshot " + sandbar.Quote(in.Snapshot, 60), Fix: "call list_sandboxes"}
	}
	if err := x.reserve(1); err != nil {
		return nil, none, err
	}
	sandbox, err := s.engine.CreateFrom(ctx, id, engine.FromPaused{Client: x.client})
	if err != nil {
		x.mu.Lock()
		x.taken--
		x.mu.Unlock()
		return nil, none, err
	}
	b := x.adopt(sandbox, in.Default)
	return text("restored as %s", b.ID()), x.resultOf(b), nil
}
