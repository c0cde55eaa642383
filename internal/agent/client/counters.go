package client

import (
	"context"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Counters returns the contents of wire.CounterFiles, read in the sandbox: what a container runtime
// shows there of the container's cgroup. "" stands for a file that cannot be read. The agent is not
// trusted, so they are fit for a sandbox's own accounts only.
func (s *Sandbox) Counters(ctx context.Context) ([wire.Counters]string, error) {
	var texts [wire.Counters]string
	resp, err := files{s}.do(ctx, "measure", &wire.FSRequest{Op: wire.FSCounters, Path: "/"}, nil)
	if err != nil {
		return texts, err
	}
	got, err := wire.DecodeFileContents(resp.Data)
	if err != nil || len(got) != len(texts) {
		return texts, s.violated("measuring")
	}
	for i, c := range got {
		if len(c.Bytes) > wire.MaxCounterBytes {
			return texts, s.violated("measuring")
		}
		if c.Errno == 0 {
			texts[i] = string(c.Bytes)
		}
	}
	return texts, nil
}
