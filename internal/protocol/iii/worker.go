package iii

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
)

// WorkerOptions are the parameters of a Worker.
type WorkerOptions struct {
	// Options describe the sandboxes; Engine is required. Authorize, Grace and ChannelTTL have no
	// effect here.
	Options
	// URL is the engine's, such as ws://host:49134. Required.
	URL string
	// Header is sent with the upgrade, for the engine's authorization.
	Header http.Header
	// Name is the worker's name. Default "iii-sandbox".
	Name string
	// Version is the version that the worker reports.
	Version string
}

// Worker is a worker that joins an iii engine.
type Worker struct {
	functions *function.Functions
	channels  *channel.Remote
	client    *bus.Client
}

// NewWorker returns a Worker. Invalid: Config contradicts itself. Run connects it.
func NewWorker(o WorkerOptions) (*Worker, error) {
	f, err := o.functions()
	if err != nil {
		return nil, err
	}
	w := &Worker{functions: f}
	w.channels = channel.NewRemote(o.URL, w.createChannel, channel.Options{Logger: o.Logger})
	w.client = bus.NewClient(bus.ClientOptions{URL: o.URL, Header: o.Header, Name: o.Name, Version: o.Version,
		Description: "sandboxes for code that nobody has reviewed", Functions: f.Handlers(w.channels), Logger: o.Logger})
	return w, nil
}

// Run stays connected until ctx ends, and returns its error. An invalid URL is returned at once.
// Running calls are cancelled when a connection breaks, because the engine has given them up.
// Sandboxes stay.
func (w *Worker) Run(ctx context.Context) error { return w.client.Run(ctx) }

// Close ends transfers in progress, and stops the sandboxes that were created here, after Run has
// returned. It returns ctx's error if ctx ended first.
func (w *Worker) Close(ctx context.Context) error {
	w.channels.Close()
	return w.functions.Close(ctx)
}

// createChannel asks the engine for a channel.
func (w *Worker) createChannel(ctx context.Context) (reader, writer channel.Ref, err error) {
	raw, err := w.client.Invoke(ctx, "engine::channels::create", map[string]int{"buffer_size": channel.DefaultBuffer})
	if err != nil {
		return reader, writer, err
	}
	var refs struct{ Reader, Writer channel.Ref }
	err = json.Unmarshal(raw, &refs)
	return refs.Reader, refs.Writer, err
}
