package client

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// EventQuery selects events. A zero field is no condition.
type EventQuery struct {
	Sandboxes []string // ids or names
	// Types are types of wire.Notification, or first words of types, such as "sandbox".
	Types []string
	// After is the id of an event, or Oldest. Default: the present.
	After string
}

// Oldest, as EventQuery.After, begins with the oldest event that the daemon keeps.
const Oldest = "oldest"

// Events delivers what happens to sandboxes, until ctx ends or fn returns an error, which is
// returned. It reconnects after a broken connection without loss or repetition. A notification of
// the type "gap" stands for events that the daemon no longer keeps, which are at least 4096 events
// old, or happened before the daemon was restarted.
//
// Unavailable: the daemon cannot be reached for about 20 s; call it again with After. Invalid: a
// type or an id is not known.
func (c *Client) Events(ctx context.Context, q EventQuery, fn func(wire.Notification) error) error {
	query := url.Values{"sandbox": q.Sandboxes, "type": q.Types}
	if q.After != "" {
		query.Set("after", q.After)
	}
	s := &stream{c: c, path: "/v1/events", query: query, take: func(e event) error {
		if len(e.data) == 0 {
			return nil // a position
		}
		var n wire.Notification
		if err := json.Unmarshal(e.data, &n); err != nil {
			return c.badAnswer(err)
		}
		return fn(n)
	}}
	return s.run(ctx)
}
