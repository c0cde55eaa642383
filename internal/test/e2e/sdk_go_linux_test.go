package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// goRunner does steps with package client. It is the counterpart of testdata/sdk/conformance.py and
// conformance.mjs.
type goRunner struct {
	ctx     context.Context
	url     string
	clients []*client.Client
	objects map[string]goObject
}

// goObject is what a step has made: a sandbox, or a process, context or preview of one.
type goObject struct {
	c       *client.Client
	sandbox string
	id      string // of the process or context
	preview wire.Preview
}

// goArgs are the arguments of all steps.
type goArgs struct {
	ID, URL, Token      string
	Cmd, Cwd, Stdin     string
	Env                 map[string]string
	Timeout             wire.Amount
	Check               bool
	Times, Take, Last   int
	Follow              *bool
	Path, Text, Until   string
	Mode                fs.FileMode
	Size, Recursive     bool
	Then                []sdkStep
	Code, Language, Dir string
	InterruptOn         string `json:"interrupt_on"`
	LeaveOn             string `json:"leave_on"`
	Args                []string
	Rows, Cols, Port    int
	Input               string
	Resize              []int
	Public              bool
	Labels              any
	State, Name         string
	Types               []string
	After               string
	IdleTimeout         float64 `json:"idle_timeout"`
}

func (r *goRunner) close() {
	for _, c := range r.clients {
		c.Close()
	}
}

// step does a step and returns its outcome.
func (r *goRunner) step(s sdkStep) (sdkOutcome, error) {
	on, there := r.objects[cmp.Or(s.On, "box")]
	if !there && !slices.Contains([]string{"create", "connect", "list"}, s.Op) {
		return sdkOutcome{Absent: true}, nil
	}
	var a goArgs
	if len(s.Args) > 0 {
		if err := json.Unmarshal(s.Args, &a); err != nil && s.Op != "create" {
			return sdkOutcome{}, err
		}
	}
	made, value, err := r.do(s, on, a)
	if failed, ok := errors.AsType[*client.CommandError](err); ok && failed.Result.ExitCode != 0 {
		return sdkOutcome{Error: "command"}, nil
	}
	if e, ok := errors.AsType[*sandbar.Error](err); ok {
		return sdkOutcome{Error: string(e.Code), Field: e.Field}, nil
	}
	if err != nil {
		return sdkOutcome{}, err
	}
	if made != nil && s.As != "" {
		r.objects[s.As] = *made
	}
	b, err := json.Marshal(value)
	return sdkOutcome{Value: b}, err
}

// do does a step. It returns the object that the step has made, if any, and its value.
func (r *goRunner) do(s sdkStep, on goObject, a goArgs) (*goObject, any, error) {
	c, id, ctx := on.c, on.sandbox, r.ctx
	inside := func(name string) *goObject { return &goObject{c: c, sandbox: id, id: name} }
	switch s.Op {
	case "create", "connect", "list":
		return r.top(s, a)
	case "renew":
		x, err := c.Renew(ctx, id, time.Duration(a.IdleTimeout*float64(time.Second)))
		return nil, map[string]any{"idle_timeout": x.IdleTimeout}, err
	case "metrics":
		x, err := c.Metrics(ctx, id)
		used := []any{}
		for _, u := range []struct {
			name string
			is   bool
		}{{"cpu_time_ms", x.CPUTimeMS > 0}, {"memory_bytes", x.Memory > 0}, {"processes", x.Processes > 0}} {
			if u.is {
				used = append(used, u.name)
			}
		}
		return nil, used, err
	case "events":
		x, err := eventsUntil(ctx, on, a)
		return nil, x, err
	case "refresh":
		x, err := c.Get(ctx, id)
		return nil, map[string]any{"state": x.State}, err
	case "stop":
		return nil, nil, c.Stop(ctx, id)
	case "pause":
		x, err := c.Pause(ctx, id)
		return nil, map[string]any{"state": x.State}, err
	case "resume":
		x, err := c.Resume(ctx, id)
		return nil, map[string]any{"state": x.State}, err
	case "fork":
		copies, err := c.Fork(ctx, id, 1)
		if err != nil {
			return nil, nil, err
		}
		return &goObject{c: c, sandbox: string(copies[0].ID)}, []any{map[string]any{"state": copies[0].State}}, nil
	case "snapshot":
		x, err := c.Snapshot(ctx, id)
		return &goObject{c: c, sandbox: string(x.ID)}, map[string]any{"state": x.State}, err
	case "commands.run":
		x, err := runCommand(ctx, on, a)
		return nil, x, err
	case "commands.start":
		p, err := c.StartProcess(ctx, id, a.Cmd, a.Cwd, a.Env)
		return inside(p.ID), nil, err
	case "commands.list":
		all, err := c.Processes(ctx, id)
		list := []any{}
		for _, p := range all {
			list = append(list, map[string]any{"status": p.Status, "exit_code": p.ExitCode})
		}
		return nil, list, err
	case "process.output":
		x, err := processOutput(ctx, on, a)
		return nil, x, err
	case "process.wait":
		code, err := c.Wait(ctx, id, on.id)
		return nil, code, err
	case "process.kill":
		return nil, nil, c.Kill(ctx, id, cmp.Or(a.ID, on.id))
	case "run_code":
		x, err := c.RunCode(ctx, id, a.Language, wire.Cell{Code: a.Code, Env: a.Env, Timeout: a.Timeout})
		return nil, executionOf(x), err
	case "expose":
		p, err := c.Preview(ctx, id, a.Port, a.Public)
		return &goObject{c: c, sandbox: id, preview: p}, map[string]any{"port": p.Port, "public": p.Public}, err
	case "previews":
		all, err := c.Previews(ctx, id)
		list := []any{}
		for _, p := range all {
			list = append(list, map[string]any{"port": p.Port, "public": p.Public})
		}
		return nil, list, err
	case "unexpose":
		return nil, nil, c.RemovePreview(ctx, id, a.Port)
	case "get":
		x, err := r.get(on.preview, a.Path)
		return nil, x, err
	case "pty":
		x, err := runTerminal(ctx, on, a)
		return nil, x, err
	case "contexts.create":
		x, err := c.CreateContext(ctx, id, wire.CreateContext{Language: a.Language, Dir: a.Dir, Env: a.Env})
		return inside(x.ID), map[string]any{"language": x.Language}, err
	}
	if strings.HasPrefix(s.Op, "files.") {
		x, err := r.files(s.Op, on, a)
		return nil, x, err
	}
	x, err := r.contexts(s.Op, on, a)
	return nil, x, err
}

// top does a step that is not one of a sandbox.
func (r *goRunner) top(s sdkStep, a goArgs) (*goObject, any, error) {
	c, err := client.New(cmp.Or(a.URL, r.url), cmp.Or(a.Token, token))
	if err != nil {
		return nil, nil, err
	}
	r.clients = append(r.clients, c)
	if s.Op == "list" {
		search := client.Search{State: a.State, Name: a.Name, Labels: map[string]string{}}
		switch labels := a.Labels.(type) {
		case map[string]any:
			for k, v := range labels {
				search.Labels[k], _ = v.(string)
			}
		case []any:
			for _, k := range labels {
				search.HasLabels = append(search.HasLabels, fmt.Sprint(k))
			}
		}
		all, err := c.Search(r.ctx, search)
		names := []any{}
		for _, x := range all {
			names = append(names, x.Name)
		}
		return nil, names, err
	}
	var x wire.Sandbox
	if s.Op == "connect" {
		x, err = c.Get(r.ctx, a.ID)
	} else {
		var create wire.Create
		if err := json.Unmarshal(s.Args, &create); err != nil {
			return nil, nil, err
		}
		x, err = c.Create(r.ctx, create)
	}
	if err != nil {
		return nil, nil, err
	}
	return &goObject{c: c, sandbox: string(x.ID)}, map[string]any{"name": x.Name, "state": x.State, "labels": x.Labels,
		"idle_timeout": x.IdleTimeout, "timeout": x.Limits.Timeout}, nil
}

// eventsUntil reads the events of a sandbox up to one of the type a.Until.
func eventsUntil(ctx context.Context, on goObject, a goArgs) (any, error) {
	var types []string
	reason, lost, ids, repeated := "", 0, map[string]bool{}, 0
	err := on.c.Events(ctx, client.EventQuery{Sandboxes: []string{on.sandbox}, Types: a.Types, After: a.After}, func(n wire.Notification) error {
		if !slices.Contains(types, n.Type) {
			types = append(types, n.Type)
		}
		if ids[n.ID] {
			repeated++
		}
		ids[n.ID], reason = true, n.Reason
		switch n.Type {
		case "program.started":
			lost++
		case "program.ended":
			lost--
		case a.Until:
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		err = nil
	}
	return map[string]any{"types": types, "reason": reason, "lost": lost, "repeated": repeated}, err
}

func runCommand(ctx context.Context, on goObject, a goArgs) (any, error) {
	if a.Stdin == "" {
		x, err := on.c.Run(ctx, on.sandbox, client.Command{Cmd: a.Cmd, Env: a.Env, Dir: a.Cwd, Timeout: a.Timeout})
		if err == nil && a.Check {
			err = x.Check()
		}
		return map[string]any{"stdout": x.Stdout, "stderr": x.Stderr, "exit_code": x.ExitCode, "error": x.Reason, "truncated": x.Truncated}, err
	}
	var out, errs bytes.Buffer
	x, err := on.c.Exec(ctx, on.sandbox, wire.Exec{Args: []string{"sh", "-c", a.Cmd}, Env: a.Env, Dir: a.Cwd, Timeout: a.Timeout},
		client.Streams{Stdin: strings.NewReader(strings.Repeat(a.Stdin, max(a.Times, 1))), Stdout: &out, Stderr: &errs})
	// The other SDKs have one method for both, and so one form of reasons.
	code, reason := -1, "timed out after "+strconv.FormatFloat(float64(a.Timeout), 'f', -1, 64)+"s"
	if x.ExitCode != nil {
		code, reason = *x.ExitCode, ""
	}
	if code > 0 {
		reason = "Non-zero exit code"
	}
	return map[string]any{"stdout": out.String(), "stderr": errs.String(), "exit_code": code, "error": reason, "truncated": x.Truncated}, err
}

// errEnough ends a stream.
var errEnough = errors.New("enough")

func processOutput(ctx context.Context, on goObject, a goArgs) (any, error) {
	lines, lost := map[string][]string{}, 0
	err := on.c.Logs(ctx, on.sandbox, cmp.Or(a.ID, on.id), a.Follow == nil || *a.Follow, func(l client.Line) error {
		lost += l.Lost
		if l.Lost == 0 {
			lines[l.Stream] = append(lines[l.Stream], l.Data)
		}
		if a.Take > 0 && len(lines["stdout"]) == a.Take {
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		err = nil
	}
	last := func(all []string) []string {
		if a.Last == 0 {
			return all
		}
		return all[max(0, len(all)-a.Last):]
	}
	return map[string]any{"stdout": last(lines["stdout"]), "stderr": last(lines["stderr"]), "lost": lost}, err
}

func runTerminal(ctx context.Context, on goObject, a goArgs) (any, error) {
	sizes, over := make(chan sandbar.TerminalSize), make(chan struct{})
	input, typed := io.Pipe()
	var typing sync.WaitGroup
	typing.Go(func() {
		for range len(a.Resize) { // when the second size is taken, the first one has been sent
			select {
			case sizes <- sandbar.TerminalSize{Rows: a.Resize[0], Cols: a.Resize[1]}:
			case <-over:
			}
		}
		io.WriteString(typed, a.Input)
	})
	defer typing.Wait()
	defer input.Close()
	defer close(over)
	var out bytes.Buffer
	x, err := on.c.Exec(ctx, on.sandbox, wire.Exec{Args: a.Args, Env: a.Env, Dir: a.Dir, Terminal: &wire.TerminalSize{Rows: cmp.Or(a.Rows, 24), Cols: cmp.Or(a.Cols, 80)}},
		client.Streams{Stdin: input, Stdout: &out, Stderr: io.Discard, Sizes: sizes})
	return map[string]any{"output": out.String(), "exit_code": x.ExitCode}, err
}

func (r *goRunner) get(p wire.Preview, path string) (any, error) {
	page, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	// The domain of previews is that of browsers: the request goes to the daemon's address.
	q, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, err
	}
	q.Host, q.Close = page.Host, true
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return map[string]any{"status": resp.StatusCode, "body": string(b)}, err
}

// files does a step of files.
func (r *goRunner) files(op string, on goObject, a goArgs) (any, error) {
	c, id, ctx := on.c, on.sandbox, r.ctx
	switch op {
	case "files.write":
		text := strings.Repeat(a.Text, max(a.Times, 1))
		return nil, c.Upload(ctx, id, a.Path, strings.NewReader(text), int64(len(text)), a.Mode, true)
	case "files.read":
		d, err := c.Download(ctx, id, a.Path)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		b, err := io.ReadAll(d)
		if a.Size {
			return len(b), err
		}
		return string(b), err
	case "files.list":
		all, err := c.Dir(ctx, id, a.Path)
		list := []any{}
		for _, e := range all {
			x := map[string]any{"name": e.Name, "type": e.Type}
			if e.Type == wire.TypeFile {
				x["size"], x["mode"] = e.Size, e.Mode
			}
			list = append(list, x)
		}
		return list, err
	case "files.exists":
		return c.Exists(ctx, id, a.Path)
	case "files.make_dir":
		return nil, c.MakeDir(ctx, id, a.Path)
	case "files.remove":
		return nil, c.Remove(ctx, id, a.Path)
	case "files.remove_dir":
		return nil, c.RemoveDir(ctx, id, a.Path)
	case "files.watch":
		w, err := c.Watch(ctx, id, a.Path, a.Recursive)
		if err != nil {
			return nil, err
		}
		defer w.Close()
		for _, s := range a.Then {
			if _, err := r.step(s); err != nil {
				return nil, err
			}
		}
		for {
			if e, err := w.Next(); err != nil || string(e.Op)+" "+e.Path == a.Until {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("%s is no operation", op)
}

// contexts does a step of contexts.
func (r *goRunner) contexts(op string, on goObject, a goArgs) (any, error) {
	c, id, ctx := on.c, on.sandbox, r.ctx
	switch op {
	case "contexts.list", "contexts.remove_all":
		all, err := c.Contexts(ctx, id)
		languages := []any{}
		for _, x := range all {
			languages = append(languages, x.Language)
			if op == "contexts.remove_all" {
				err = errors.Join(err, c.RemoveContext(ctx, id, x.ID))
			}
		}
		if op == "contexts.remove_all" {
			return nil, err
		}
		return languages, err
	case "context.run":
		x, err := c.RunContext(ctx, id, on.id, wire.Cell{Code: a.Code, Env: a.Env, Timeout: a.Timeout})
		return executionOf(x), err
	case "context.stream":
		return streamCell(ctx, on, a)
	case "context.restart":
		_, err := c.RestartContext(ctx, id, on.id)
		return nil, err
	case "context.remove":
		return nil, c.RemoveContext(ctx, id, on.id)
	}
	return nil, fmt.Errorf("%s is no operation", op)
}

func streamCell(ctx context.Context, on goObject, a goArgs) (any, error) {
	var kinds []string
	said := ""
	_, err := on.c.RunCell(ctx, on.sandbox, on.id, wire.Cell{Code: a.Code}, func(e wire.Event) error {
		if !slices.Contains(kinds, e.Type) {
			kinds = append(kinds, e.Type)
		}
		said += e.Text
		if a.LeaveOn != "" && strings.Contains(said, a.LeaveOn) {
			return errEnough
		}
		if a.InterruptOn != "" && strings.Contains(said, a.InterruptOn) {
			said = ""
			return on.c.InterruptContext(ctx, on.sandbox, on.id)
		}
		return nil
	})
	switch err {
	case nil:
		kinds = append(kinds, wire.EventEnd)
	case errEnough:
		err = nil
	}
	return kinds, err
}

func executionOf(x client.Execution) map[string]any {
	results := []any{}
	for _, r := range x.Results {
		results = append(results, map[string]any{"text": r.Text, "html": r.HTML, "png": hex.EncodeToString(r.PNG), "main": r.Main})
	}
	return map[string]any{"stdout": x.Stdout, "stderr": x.Stderr, "text": x.Text(), "png": hex.EncodeToString(x.PNG()), "results": results,
		"error": x.Error, "outcome": x.Outcome, "lost": x.Lost}
}
