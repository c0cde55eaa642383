package iii

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// Options are what an operator can set. New fills zero fields with the defaults
// given here.
type Options struct {
	// Engine makes the sandboxes. A Server without one has no functions of its
	// own: workers bring them.
	Engine *engine.Engine
	// Config is the settings of the worker. The zero Config allows no image.
	Config settings.Config
	// Images finds images. Default: HostImages.
	Images function.Images
	// Network is what a sandbox with network: true gets. Default: none, and
	// asking for it is refused.
	Network sandbar.Network
	// Sees and HostMemory are as in function.Options.
	Sees       func(engine.Info) bool
	HostMemory int64
	// Authorize decides who may connect, as a worker or to /otel; its error's text
	// is told with status 401. It is not asked about /ws/channels, to which the SDKs
	// send no headers: each channel has a key. Nil: everybody who gets here.
	Authorize func(*http.Request) error
	// Grace is how long the calls of a client whose connection broke run on, for
	// it to come back. Default 10 s; negative: none.
	Grace time.Duration
	// ChannelTTL is how long an end of a channel may remain unopened. Default
	// 5 min.
	ChannelTTL time.Duration
	// Logger takes structured logs: never code, environment, payloads or keys.
	// Default: discards.
	Logger *slog.Logger
}

func (o Options) functions() (*function.Functions, error) {
	if o.Images == nil {
		o.Images = HostImages()
	}
	return function.New(function.Options{Engine: o.Engine, Config: o.Config, Images: o.Images, Network: o.Network,
		Sees: o.Sees, HostMemory: o.HostMemory, Logger: o.Logger})
}

// Server is the engine's side. Its methods may be called concurrently.
type Server struct {
	functions *function.Functions // nil: none
	channels  *channel.Hub
	bus       *bus.Server
}

// New makes a Server. It fails with Invalid where Config contradicts itself.
func New(o Options) (*Server, error) {
	s := &Server{channels: channel.NewHub(channel.Options{TTL: o.ChannelTTL, Logger: o.Logger})}
	var handlers []bus.Function
	if o.Engine != nil {
		var err error
		if s.functions, err = o.functions(); err != nil {
			return nil, err
		}
		handlers = s.functions.Handlers(s.channels)
	}
	s.bus = bus.NewServer(bus.ServerOptions{Functions: handlers, Channels: s.channels,
		Authorize: o.Authorize, Grace: o.Grace, Logger: o.Logger})
	return s, nil
}

// Handler serves the protocol's three sockets: / for workers, /otel for
// telemetry and /ws/channels/{id} for channels.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", s.bus)
	mux.HandleFunc("GET /otel", s.bus.ServeTelemetry)
	mux.Handle("GET "+channel.Path, s.channels)
	return mux
}

// Shutdown ends the server in order: new connections and calls are refused,
// calls under way go on until ctx ends, connections are closed, and the
// sandboxes that were made here are stopped. It returns ctx's error if that
// ended first; what is left then is the engine's to stop.
func (s *Server) Shutdown(ctx context.Context) error {
	busy := s.bus.Shutdown(ctx)
	s.channels.Close()
	if s.functions == nil {
		return busy
	}
	return errors.Join(busy, s.functions.Close(ctx))
}
