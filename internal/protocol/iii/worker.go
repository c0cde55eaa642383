package iii

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/function"
)

// WorkerOptions are what a Worker is made from.
type WorkerOptions struct {
	// Options are the sandboxes; Engine is required. Authorize, Grace and
	// ChannelTTL are a Server's and mean nothing here.
	Options
	// URL is the engine's, such as ws://host:49134. Required.
	URL string
	// Header is sent with the upgrade: what the engine wants for authorization.
	Header http.Header
	// Name is what the worker is called. Default "iii-sandbox".
	Name string
	// Version is what the worker tells of itself.
	Version string
}

// Worker is a worker that joins an iii engine.
type Worker struct {
	functions *function.Functions
	channels  *channel.Remote
	client    *bus.Client
}

// NewWorker makes a Worker. It fails with Invalid where Config contradicts
// itself. Run connects it.
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

// Run stays connected until ctx ends, and returns its error; a URL that can
// never work is returned at once. Calls under way when a connection breaks are
// cancelled: the engine has given them up. Sandboxes remain.
func (w *Worker) Run(ctx context.Context) error { return w.client.Run(ctx) }

// Close ends what Run leaves, once that has returned: transfers under way and
// the sandboxes that were made here. It returns ctx's error if that ended first.
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
