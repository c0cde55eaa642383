package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
)

// NewRequest returns an id for a request of a client, such as "req_3w5e11264sgsf", for
// Client.Request. It is random, so that it tells nothing about other requests, and no secret.
func NewRequest() string { return "req_" + strconv.FormatUint(rand.Uint64(), 36) }

// LogHandler returns a handler that adds the caller in the context of a record, see WithClient, to
// it: the client, its tenant and the request. A record without a caller in its context stays as it
// is.
func LogHandler(h slog.Handler) slog.Handler { return callerHandler{h} }

type callerHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h callerHandler) Handle(ctx context.Context, r slog.Record) error {
	if c, own := callerOf(ctx); !own {
		r = r.Clone()
		r.AddAttrs(slog.Any("", c))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h callerHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return callerHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h callerHandler) WithGroup(name string) slog.Handler {
	return callerHandler{h.Handler.WithGroup(name)}
}
