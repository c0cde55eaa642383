package function

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// Images finds the root file systems of images. Its methods may be called
// concurrently.
type Images interface {
	// Find returns an image that is on this host. NotFound means that it must be pulled; any other
	// error counts as that of a failed pull.
	Find(ctx context.Context, image settings.Image) (Root, error)
	// Pull pulls the image, which may take minutes.
	Pull(ctx context.Context, image settings.Image) (Root, error)
}

// Root is an image on this host.
type Root struct {
	// Image is the value for sandbar.Spec.Image.
	Image string
	// Ref is oci_ref in sandbox::catalog::list. "" for the image's own.
	Ref string
	// Note, if not "", tells the caller that this is not exactly the requested image, and why.
	Note string
}

// Options are the parameters of Functions. New replaces zero fields with the defaults given here.
type Options struct {
	// Engine creates the sandboxes. Required.
	Engine *engine.Engine
	// Config is the operator's settings.
	Config settings.Config
	// Driver is the driver of the sandboxes, one of the engine's. Default: the engine's first.
	Driver string
	// Images finds images. Required.
	Images Images
	// Network is the network of a sandbox with network: true. Default: none, and requests for it
	// are refused.
	Network sandbar.Network
	// Visible decides which sandboxes of other protocols callers can see and use. Nil: all of the
	// engine.
	Visible func(engine.Info) bool
	// HostMemory is the host's memory in bytes, to which memory_mb is reduced. 0: unknown.
	HostMemory int64
	// StreamGap is the time without data after which the writer of a file counts as gone. Default 5
	// s.
	StreamGap time.Duration
	// Logger receives structured logs, never code, environment, output or files. Default: discards.
	Logger *slog.Logger
}

// Functions has the functions, and the sandboxes that they have created. Its methods may be called
// concurrently.
type Functions struct {
	opt   Options
	tasks sync.WaitGroup // stops in the background

	mu        sync.Mutex
	closed    bool
	sandboxes map[sandbar.ID]*sandboxEntry
	making    int // creates in progress
}

// New returns Functions. Config must pass its Check.
func New(o Options) (*Functions, error) {
	if err := o.Config.Check(); err != nil {
		return nil, err
	}
	if o.StreamGap == 0 {
		o.StreamGap = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Functions{opt: o, sandboxes: map[sandbar.ID]*sandboxEntry{}}, nil
}

// Handlers returns the functions, with channels opened through ends.
func (f *Functions) Handlers(ends channel.Ends) []bus.Function {
	handle := map[string]func(context.Context, json.RawMessage) (any, error){
		"sandbox::catalog::list": f.catalogList,
		"sandbox::create":        f.create,
		"sandbox::exec":          f.exec,
		"sandbox::list":          f.list,
		"sandbox::run":           f.run,
		"sandbox::stop":          f.stop,
		"sandbox::fs::ls":        f.fsLs,
		"sandbox::fs::stat":      f.fsStat,
		"sandbox::fs::mkdir":     f.fsMkdir,
		"sandbox::fs::rm":        f.fsRm,
		"sandbox::fs::chmod":     f.fsChmod,
		"sandbox::fs::mv":        f.fsMv,
		"sandbox::fs::grep":      f.fsGrep,
		"sandbox::fs::sed":       f.fsSed,
		"sandbox::fs::write": func(ctx context.Context, data json.RawMessage) (any, error) {
			return f.fsWrite(ctx, data, ends)
		},
		"sandbox::fs::read": func(ctx context.Context, data json.RawMessage) (any, error) {
			return f.fsRead(ctx, data, ends)
		},
	}
	functions := schemas()
	for i := range functions {
		h := handle[functions[i].ID]
		name := "iii " + functions[i].ID
		functions[i].Handle = func(ctx context.Context, c bus.Call) (any, error) {
			client := client
			client.Request = engine.NewRequest()
			client, traced := f.opt.Engine.BeginRequest(client, name, c.Traceparent)
			defer traced()
			return h(engine.WithClient(ctx, client), c.Data)
		}
	}
	return functions
}

//go:embed schemas.json
var schemasJSON []byte

// schemas returns the functions with their descriptions and JSON schemas.
func schemas() []bus.Function {
	var file struct {
		Functions []struct {
			Name, Description string
			Request           json.RawMessage `json:"request_schema"`
			Response          json.RawMessage `json:"response_schema"`
		}
	}
	if err := json.Unmarshal(schemasJSON, &file); err != nil {
		panic("function: schemas.json, which is part of the program: " + err.Error())
	}
	functions := make([]bus.Function, 0, len(file.Functions))
	for _, s := range file.Functions {
		functions = append(functions, bus.Function{ID: s.Name, Description: s.Description,
			Request: s.Request, Response: s.Response, Metadata: json.RawMessage("{}")})
	}
	return functions
}

// Close stops the sandboxes that the functions have created, and waits until they are gone or ctx
// ends. No further sandbox can be created. Running calls fail.
func (f *Functions) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	all := f.sandboxes
	f.sandboxes = map[sandbar.ID]*sandboxEntry{}
	f.mu.Unlock()
	for _, b := range all {
		if b.foreign {
			continue
		}
		f.tasks.Go(func() { f.remove(context.Background(), b) })
	}
	gone := make(chan struct{})
	go func() {
		f.tasks.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// catalogList implements sandbox::catalog::list. For a substituted preset it returns the reference
// of the substitute.
func (f *Functions) catalogList(ctx context.Context, data json.RawMessage) (any, error) {
	if _, err := decode(data, "CatalogListRequest"); err != nil {
		return nil, err
	}
	all := f.opt.Config.Catalogue()
	for i := range all {
		if all[i].Kind != settings.Preset {
			continue
		}
		if root, err := f.opt.Images.Find(ctx, all[i]); err == nil && root.Ref != "" {
			all[i].OCIRef = root.Ref
		}
	}
	return map[string]any{"images": all}, nil
}
