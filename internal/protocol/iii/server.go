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

// Options are the operator's settings. New replaces zero fields with the defaults given here.
type Options struct {
	// Engine creates the sandboxes. A Server without one has no functions of its own; workers
	// register them.
	Engine *engine.Engine
	// Config is the worker's settings. The zero Config allows no image.
	Config settings.Config
	// Driver is as in function.Options.
	Driver string
	// Images finds images. Default: HostImages.
	Images function.Images
	// Network is the network of a sandbox with network: true. Default: none, and requests for it
	// are refused.
	Network sandbar.Network
	// Visible and HostMemory are as in function.Options.
	Visible    func(engine.Info) bool
	HostMemory int64
	// Authorize decides which clients may connect, as a worker or to /otel; a refused client gets
	// the error's text with status 401. It is not called for /ws/channels, to which SDKs send no
	// headers; each channel has a key. Nil: all requests may connect.
	Authorize func(*http.Request) error
	// Grace is the time for which the calls of a lost client continue, so that it can reconnect.
	// Default 10 s; negative: none.
	Grace time.Duration
	// ChannelTTL is the time after which an unopened end of a channel expires. Default 5 min.
	ChannelTTL time.Duration
	// Logger receives structured logs, never code, environment, payloads or keys. Default:
	// discards.
	Logger *slog.Logger
}

func (o Options) functions() (*function.Functions, error) {
	if o.Images == nil {
		o.Images = HostImages()
	}
	return function.New(function.Options{Engine: o.Engine, Config: o.Config, Driver: o.Driver, Images: o.Images, Network: o.Network,
		Visible: o.Visible, HostMemory: o.HostMemory, Logger: o.Logger})
}

// Server is the engine's side. Its methods may be called concurrently.
type Server struct {
	functions *function.Functions // nil: none
	channels  *channel.Hub
	bus       *bus.Server
}

// New returns a Server. Invalid: Config contradicts itself.
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

// Shutdown ends the server gracefully: it refuses new connections and calls, lets running calls
// continue until ctx ends, closes the connections, and stops the sandboxes that were created here.
// It returns ctx's error if ctx ended first; the engine then stops the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	busy := s.bus.Shutdown(ctx)
	s.channels.Close()
	if s.functions == nil {
		return busy
	}
	return errors.Join(busy, s.functions.Close(ctx))
}
