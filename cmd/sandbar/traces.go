package main

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/trace"
)

// tracesPath is the path of a collector whose URL has none (OTLP/HTTP).
const tracesPath = "/v1/traces"

// lastTraces bounds the time in which the last traces are sent at the daemon's end.
const lastTraces = 2 * time.Second

// newTracer starts the export of traces. It is nil if none is set.
func newTracer(cfg *config.Config, log *slog.Logger) (engine.Tracer, func(), error) {
	if cfg.Traces.Endpoint == "" {
		return nil, func() {}, nil
	}
	headers, err := cfg.Traces.Headers()
	if err != nil {
		return nil, nil, err
	}
	endpoint, err := url.Parse(cfg.Traces.Endpoint)
	if err != nil {
		return nil, nil, err // config has checked it
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = tracesPath
	}
	t := trace.New(trace.Options{Endpoint: endpoint.String(), Headers: headers, Ratio: cfg.Traces.Ratio, Version: thisBuild().Version, Logger: log})
	return t, func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastTraces)
		defer cancel()
		t.Close(ctx)
	}, nil
}
