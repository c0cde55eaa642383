package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// Preview gives a port of a sandbox a URL that a browser can open. It has a token, unless public is
// set. Calling it again changes public and keeps the token.
func (c *Client) Preview(ctx context.Context, id string, port int, public bool) (wire.Preview, error) {
	var p wire.Preview
	err := c.call(ctx, http.MethodPost, path(id, "previews"), nil, wire.Preview{Port: port, Public: public}, &p)
	return p, err
}

// Previews lists the previews of a sandbox, sorted by port.
func (c *Client) Previews(ctx context.Context, id string) ([]wire.Preview, error) {
	var p wire.Previews
	err := c.call(ctx, http.MethodGet, path(id, "previews"), nil, nil, &p)
	return p.Previews, err
}

// RemovePreview makes the URL of a port invalid.
func (c *Client) RemovePreview(ctx context.Context, id string, port int) error {
	return c.call(ctx, http.MethodDelete, path(id, "previews", strconv.Itoa(port)), nil, nil, nil)
}
