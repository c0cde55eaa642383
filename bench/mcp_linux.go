package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpCode measures `1+1` by the tool run_code over HTTP, in an interpreter that runs, and in the
// same session a tool that runs nothing.
func mcpCode(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	transport := &mcp.StreamableClientTransport{Endpoint: "http://" + x.daemon.addr + "/mcp", HTTPClient: &http.Client{Transport: bearer(x.daemon.token)}}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(x.ctx, transport, nil)
	if err != nil {
		return measured{}, err
	}
	defer s.Close()
	call := func(tool string, arguments map[string]any) func() error {
		return func() error { return callTool(x.ctx, s, tool, arguments) }
	}
	code, nothing := call("run_code", map[string]any{"code": "1+1"}), call("list_sandboxes", map[string]any{})
	for range 50 { // warms up
		if err := code(); err != nil {
			return measured{}, err
		}
	}
	ours, empty, err := interleave(1000, code, nothing)
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "list_sandboxes in the same session: " + empty.String(),
		kept: ours.quantile(0.5) <= 5*time.Millisecond}, nil
}

func callTool(ctx context.Context, s *mcp.ClientSession, tool string, arguments map[string]any) error {
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err == nil && r.IsError {
		err = fmt.Errorf("%s: %v", tool, r.Meta)
	}
	return err
}

// bearer adds a token to requests.
type bearer string

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
