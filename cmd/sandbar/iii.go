package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/image"
	"github.com/sandbar-dev/sandbar/internal/protocol/control"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// foreignIII parses a configuration of the iii-sandbox worker, for config.Load. It returns
// nil if data has no such block.
func foreignIII(data []byte) (*config.III, error) {
	if !settings.Holds(data) {
		return nil, nil
	}
	s, err := settings.Load(data)
	if err != nil {
		return nil, err
	}
	c := &config.III{
		AutoInstall: s.AutoInstall, ImageAllowlist: s.ImageAllowlist,
		// Longer durations are cut to a year, as settings does.
		DefaultIdleTimeoutSecs:      int64(settings.Seconds(s.DefaultIdleTimeoutSecs) / time.Second),
		MaxExecTimeoutMS:            int64(settings.Milliseconds(s.MaxExecTimeoutMS) / time.Millisecond),
		MaxConcurrentSandboxes:      int64(s.MaxConcurrentSandboxes),
		MaxConcurrentExecPerSandbox: int64(s.MaxConcurrentExecPerSandbox),
		DefaultCPUs:                 int64(s.DefaultCPUs), DefaultMemoryMB: int64(s.DefaultMemoryMB),
		PerImageCaps: map[string]config.ImageCaps{}, CustomImages: map[string]string{},
	}
	for name, caps := range s.PerImageCaps {
		c.PerImageCaps[name] = config.ImageCaps{MaxCPUs: int64(caps.MaxCPUs), MaxMemoryMB: int64(caps.MaxMemoryMB)}
	}
	for name, ref := range s.CustomImages {
		c.CustomImages[name] = ref
	}
	return c, nil
}

// iiiSettings converts the settings for the protocol package. config.Load has checked their ranges.
func iiiSettings(c config.III) settings.Config {
	s := settings.Config{
		AutoInstall: c.AutoInstall, ImageAllowlist: c.ImageAllowlist, CustomImages: c.CustomImages,
		DefaultIdleTimeoutSecs: uint64(c.DefaultIdleTimeoutSecs), MaxExecTimeoutMS: uint64(c.MaxExecTimeoutMS),
		MaxConcurrentSandboxes: int(c.MaxConcurrentSandboxes), MaxConcurrentExecPerSandbox: int(c.MaxConcurrentExecPerSandbox),
		DefaultCPUs: uint32(c.DefaultCPUs), DefaultMemoryMB: uint32(c.DefaultMemoryMB),
		PerImageCaps: map[string]settings.Caps{},
	}
	for name, caps := range c.PerImageCaps {
		s.PerImageCaps[name] = settings.Caps{MaxCPUs: uint32(caps.MaxCPUs), MaxMemoryMB: uint32(caps.MaxMemoryMB)}
	}
	return s
}

// iiiOptions returns the options of the protocol for the server (serve --iii) and for the worker. d
// is the driver of its sandboxes.
func iiiOptions(cfg *config.Config, d driver.Driver, e *engine.Engine, log *slog.Logger) iii.Options {
	o := iii.Options{Engine: e, Config: iiiSettings(cfg.III), Images: newIIIImages(cfg, d, log), Logger: log}
	if name := d.Caps().Name; name != e.Caps().Name {
		o.Driver = name
	}
	if _, _, most := e.Limits(); cfg.Origin(maxMemory) == "" && platform.HostMemory() > 0 {
		o.HostMemory = most.Memory // raiseIIILimits set it to the host's
	}
	if d.Caps().Outbound {
		o.Network = sandbar.NetworkOutbound
	}
	if len(o.Config.Allowed()) == 0 {
		log.Warn("iii: no image is allowed, so no sandbox can be created", "next", "set iii.image_allowlist, such as [python, node]")
	}
	return o
}

// raiseIIILimits raises the engine's maximum of sandboxes to the protocol's, and its maximum
// memory to the host's, because the protocol bounds memory only by per_image_caps. A maximum
// that the operator has set stays.
func raiseIIILimits(cfg *config.Config, c *engine.Config) {
	if cfg.Origin("max_sandboxes") == "" {
		c.MaxSandboxes = max(c.MaxSandboxes, int(cfg.III.MaxConcurrentSandboxes))
	}
	if cfg.Origin(maxMemory) == "" && c.Max.Memory != sandbar.Unlimited {
		c.Max.Memory = max(c.Max.Memory, platform.HostMemory())
	}
}

// maxMemory is the setting that bounds the memory of sandboxes.
const maxMemory = "limits.max.memory"

// iiiImages implements function.Images. The protocol checks image_allowlist before it calls.
type iiiImages struct {
	log *slog.Logger
	// installed returns the catalogue that never pulls, pulling the catalogue that pulls.
	installed, pulling func() (*image.Catalogue, error)
	// substitute finds a substitute for a preset that is not installed: the host's programs,
	// or an image of the driver.
	substitute func(ctx context.Context, preset string) (platform.Substitute, bool)
}

func newIIIImages(cfg *config.Config, d driver.Driver, log *slog.Logger) function.Images {
	catalogue := func(fetch bool) func() (*image.Catalogue, error) {
		return sync.OnceValues(func() (*image.Catalogue, error) {
			store, err := platform.ImageStore(cfg)
			if err != nil {
				return nil, err
			}
			return image.NewCatalogue(image.CatalogueConfig{Store: store, AutoInstall: fetch, Pull: platform.PullOptions(cfg),
				Custom: cfg.III.CustomImages, Unrestricted: true})
		})
	}
	standIn := func(ctx context.Context, preset string) (s platform.Substitute, ok bool) {
		all := image.Presets()
		at := slices.IndexFunc(all, func(p image.Preset) bool { return p.Name == preset })
		if at < 0 || !cfg.III.StandsIn() {
			return s, false
		}
		return platform.FindSubstitute(ctx, d, all[at])
	}
	return iiiImages{log, catalogue(false), catalogue(true), standIn}
}

// Find implements function.Images.
func (i iiiImages) Find(ctx context.Context, m settings.Image) (function.Root, error) {
	root, err := i.root(ctx, m, i.installed)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		if s, ok := i.substitute(ctx, m.Name); ok {
			return function.Root{Image: s.Image, Ref: s.Ref, Note: s.Note}, nil
		}
	}
	return root, err
}

// Pull implements function.Images.
func (i iiiImages) Pull(ctx context.Context, m settings.Image) (function.Root, error) {
	i.log.Info("iii: pulling an image", "image", m.Name, "reference", m.OCIRef)
	root, err := i.root(ctx, m, i.pulling)
	if err == nil {
		i.log.Info("iii: pulled an image", "image", m.Name)
	}
	return root, err
}

func (i iiiImages) root(ctx context.Context, m settings.Image, of func() (*image.Catalogue, error)) (function.Root, error) {
	c, err := of()
	if err != nil {
		return function.Root{}, err
	}
	if _, err := c.Ensure(ctx, m.Name, nil); err != nil {
		return function.Root{}, err
	}
	// The reference, not m.Name: the engine does not have the protocol's names.
	return function.Root{Image: m.OCIRef}, nil
}

// iiiEngine is the daemon's listener that serves as an iii engine. Its shutdown method
// accepts a nil receiver.
type iiiEngine struct {
	http   *httpd.Server
	server *iii.Server
}

// newIII starts listening on iii.listen. It returns nil if that is empty.
func newIII(cfg *config.Config, d driver.Driver, e *engine.Engine, api *control.Server, token config.Token, clients map[string]string, log *slog.Logger) (*iiiEngine, error) {
	if cfg.III.Listen == "" {
		return nil, nil
	}
	o := iii.Options{Logger: log}
	if cfg.III.Sandboxes {
		o = iiiOptions(cfg, d, e, log)
		if iiiOpen(cfg) {
			o.Visible = func(i engine.Info) bool { return i.Spec.Client.Name == "" && !api.Guarded(i.ID) }
		}
	}
	server, err := iii.New(o)
	if err != nil {
		return nil, err
	}
	h, always := server.Handler(), func(*http.Request) bool { return true }
	guarded := selfAdmitting{h, func(r *http.Request) bool {
		return iiiOpen(cfg) && arrivedLocally(r)
	}}
	listener, err := httpd.Listen(httpd.Options{
		Listen: cfg.III.Listen, Token: token.Value, TokenChosen: token.Explicit, Clients: clients, MaxConnections: int(cfg.MaxConnections),
		Certificate: cfg.TLS.Cert, Key: cfg.TLS.Key,
		AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins,
		Version: thisBuild().Version, Load: e.Stats,
		Routes: map[string]http.Handler{
			"GET /{$}":  guarded,
			"GET /otel": guarded,
			// The SDKs send no token here. Each channel has its own random key.
			"GET /ws/channels/": selfAdmitting{h, always},
		},
		Logger: log,
	})
	if err != nil {
		return nil, errors.Join(withField(err, "iii.listen"), server.Shutdown(context.Background()))
	}
	log.Info("listening as an iii engine", "address", listener.URL(), "token", !iiiOpen(cfg))
	return &iiiEngine{listener, server}, nil
}

// iiiOpen reports whether clients on loopback need no token. Such clients do not see
// sandboxes that were created with a client's token or that have their own secret.
func iiiOpen(cfg *config.Config) bool { return cfg.III.Open && config.Loopback(cfg.III.Listen) }

// withField returns err as an error about a setting.
func withField(err error, setting string) error {
	e := *sandbar.AsError(err)
	e.Field = setting
	e.Message = setting + ": " + e.Message
	return &e
}

// selfAdmitting is a handler that decides which requests need no token. httpd has checked
// Host and Origin before, so no web page can use it.
type selfAdmitting struct {
	http.Handler
	admits func(*http.Request) bool
}

var _ httpd.Admitter = selfAdmitting{}

// Admits implements httpd.Admitter. The functions have a client of their own.
func (a selfAdmitting) Admits(r *http.Request) (sandbar.Client, bool) {
	return sandbar.Client{Role: sandbar.RoleNone}, a.admits(r)
}

// arrivedLocally reports whether a request came over loopback or a Unix socket.
func arrivedLocally(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// shutdown drains running calls until ctx ends, and removes the sandboxes that were created
// through this listener.
func (d *iiiEngine) shutdown(ctx context.Context) error {
	if d == nil {
		return nil
	}
	return errors.Join(d.http.Shutdown(ctx), d.server.Shutdown(ctx))
}
