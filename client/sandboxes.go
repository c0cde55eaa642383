package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// Create makes a sandbox.
func (c *Client) Create(ctx context.Context, x wire.Create) (wire.Sandbox, error) {
	var s wire.Sandbox
	err := c.call(ctx, http.MethodPost, path(), nil, x, &s)
	return s, err
}

// List returns the live and paused sandboxes, oldest first.
func (c *Client) List(ctx context.Context) ([]wire.Sandbox, error) {
	return c.Search(ctx, Search{})
}

// Search are conditions for sandboxes. A zero field is no condition.
type Search struct {
	// Labels are names and values of labels that the sandbox has.
	Labels map[string]string
	// HasLabels are names of labels that the sandbox has with any value.
	HasLabels []string
	State     string // wire.StateRunning or wire.StatePaused
	Driver    string
	Name      string
}

// query returns the conditions as parameters of GET /sandboxes.
func (s Search) query() url.Values {
	q := url.Values{}
	for name, value := range s.Labels {
		q.Add("label", name+"="+value)
	}
	for _, name := range s.HasLabels {
		q.Add("label", name)
	}
	for name, value := range map[string]string{"state": s.State, "driver": s.Driver, "name": s.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// searchPage is the number of sandboxes that Search asks for at once.
const searchPage = 1000

// Search returns the live and paused sandboxes that meet all conditions, oldest first. It makes one
// request for each 1000 sandboxes. Invalid: a condition that cannot be met.
func (c *Client) Search(ctx context.Context, s Search) ([]wire.Sandbox, error) {
	q := s.query()
	q.Set("limit", strconv.Itoa(searchPage))
	var all []wire.Sandbox
	for {
		var page wire.List
		if err := c.call(ctx, http.MethodGet, path(), q, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Sandboxes...)
		if page.Next == "" || len(page.Sandboxes) == 0 {
			return all, nil
		}
		q.Set("after", page.Next)
	}
}

// Get describes a live or paused sandbox, by its id or name.
func (c *Client) Get(ctx context.Context, id string) (wire.Sandbox, error) {
	var s wire.Sandbox
	err := c.call(ctx, http.MethodGet, path(id), nil, nil, &s)
	return s, err
}

// Stop ends a live or paused sandbox, by its id or name, and returns when nothing of it is left.
func (c *Client) Stop(ctx context.Context, id string) error {
	c.forget(id)
	return c.call(ctx, http.MethodDelete, path(id), nil, nil, nil)
}

// Renew counts as a use of a sandbox, by its id or name. An idle timeout other than 0 replaces that
// of the sandbox. Neither extends its life beyond the operator's max_lifetime (Sandbox.Expires).
// Invalid: it is longer than the operator's.
func (c *Client) Renew(ctx context.Context, id string, idle time.Duration) (wire.Sandbox, error) {
	var s wire.Sandbox
	err := c.call(ctx, http.MethodPost, path(id, "renew"), nil, wire.Renew{IdleTimeout: wire.Seconds(idle)}, &s)
	return s, err
}

// Metrics measures what a sandbox uses, by its id or name. It does not count as use. Unsupported:
// the driver or the host cannot measure it.
func (c *Client) Metrics(ctx context.Context, id string) (wire.Metrics, error) {
	var m wire.Metrics
	err := c.call(ctx, http.MethodGet, path(id, "metrics"), nil, nil, &m)
	return m, err
}

// Pause saves a sandbox, by its id or name, on the daemon's disk, with its running programs, and
// stops it. Resume continues it, also after a restart of the daemon. Unsupported: its driver
// cannot.
func (c *Client) Pause(ctx context.Context, id string) (wire.Sandbox, error) {
	var s wire.Sandbox
	err := c.call(ctx, http.MethodPost, path(id, "pause"), nil, nil, &s)
	return s, err
}

// Resume continues a paused sandbox. Gone: its state is damaged.
func (c *Client) Resume(ctx context.Context, id string) (wire.Sandbox, error) {
	var s wire.Sandbox
	err := c.call(ctx, http.MethodPost, path(id, "resume"), nil, nil, &s)
	return s, err
}

// Fork makes n copies of a sandbox with its running programs. Unsupported: its driver cannot.
func (c *Client) Fork(ctx context.Context, id string, n int) ([]wire.Sandbox, error) {
	var l wire.List
	err := c.call(ctx, http.MethodPost, path(id, "fork"), nil, wire.Fork{Count: n}, &l)
	return l.Sandboxes, err
}

// Snapshot makes a copy of a sandbox on the daemon's disk. Resume of the copy continues it.
// Unsupported: its driver cannot.
func (c *Client) Snapshot(ctx context.Context, id string) (wire.Sandbox, error) {
	copies, err := c.Fork(ctx, id, 1)
	if err != nil {
		return wire.Sandbox{}, err
	}
	saved, err := c.Pause(ctx, string(copies[0].ID))
	if err != nil {
		return saved, errors.Join(err, c.Stop(context.WithoutCancel(ctx), string(copies[0].ID)))
	}
	return saved, nil
}

// maxEntries is the largest number of entries that Dir returns.
const maxEntries = 1_000_000

// Dir lists a directory of a sandbox, sorted by name.
func (c *Client) Dir(ctx context.Context, id, dir string) ([]wire.Entry, error) {
	var all []wire.Entry
	for after := ""; ; after = all[len(all)-1].Name {
		var page wire.Dir
		if err := c.call(ctx, http.MethodGet, path(id, "dir"), url.Values{"path": {dir}, "after": {after}}, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if !page.More || len(page.Entries) == 0 {
			return all, nil
		}
		if len(all) > maxEntries {
			return nil, sandbar.Errorf(sandbar.TooLarge, "directory %s has more than %d entries", sandbar.Quote(dir, 100), maxEntries)
		}
	}
}

// Process is a background process of a sandbox.
type Process struct {
	ID        string `json:"id"`
	PID       int    `json:"pid"`
	Status    string `json:"status"`
	Command   string `json:"command"`
	ExitCode  *int   `json:"exit_code"`
	Started   string `json:"started_at"`
	Completed string `json:"completed_at"`
}

// StartProcess starts a shell command in the background.
func (c *Client) StartProcess(ctx context.Context, id, command, dir string, env map[string]string) (Process, error) {
	body := map[string]any{"cmd": command}
	if dir != "" {
		body["cwd"] = dir
	}
	if len(env) > 0 {
		body["env"] = env
	}
	p := Process{Command: command}
	err := c.call(ctx, http.MethodPost, path(id, "executor", "start_process"), nil, body, &p)
	return p, err
}

// Processes lists the background processes of a sandbox in the order of their start.
func (c *Client) Processes(ctx context.Context, id string) ([]Process, error) {
	var l struct{ Processes []Process }
	err := c.call(ctx, http.MethodGet, path(id, "executor", "list_processes"), nil, nil, &l)
	return l.Processes, err
}

// Wait waits for the end of a background process and returns its exit code, -1 without one.
// NotFound: the process is no longer remembered.
func (c *Client) Wait(ctx context.Context, id, process string) (int, error) {
	if err := c.Logs(ctx, id, process, true, func(Line) error { return nil }); err != nil {
		return -1, err
	}
	all, err := c.Processes(ctx, id)
	if err != nil {
		return -1, err
	}
	for _, p := range all {
		if p.ID == process && p.ExitCode != nil {
			return *p.ExitCode, nil
		}
	}
	return -1, &sandbar.Error{Code: sandbar.NotFound, Field: "id", Message: "the process is no longer remembered"}
}

// Kill kills a background process and all processes that it started. Conflict: it has ended.
func (c *Client) Kill(ctx context.Context, id, process string) error {
	err := c.call(ctx, http.MethodPost, path(id, "executor", "kill_process"), nil, map[string]string{"id": process}, nil)
	if sandbar.CodeOf(err) != sandbar.Invalid {
		return err
	}
	// The executor's protocol has one status for both errors.
	e := *sandbar.AsError(err)
	e.Code = sandbar.Conflict
	if strings.HasPrefix(e.Message, "process not found") {
		e.Code = sandbar.NotFound
	}
	return &e
}
