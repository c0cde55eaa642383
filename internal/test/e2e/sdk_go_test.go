package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// goClient does the steps of conformance.json with package client.
type goClient struct {
	c        *client.Client
	ctx      context.Context
	id       string
	contexts map[string]string // ids by language
}

// runGoClient does all steps.
func runGoClient(t *testing.T, url string) {
	t.Helper()
	raw, err := os.ReadFile("testdata/sdk/conformance.json")
	if err != nil {
		t.Fatal(err)
	}
	var steps []struct {
		Call, Error string
		Args        []any
		Want        any
	}
	if err := json.Unmarshal(raw, &steps); err != nil || len(steps) != sdkSteps {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	g := &goClient{ctx: within(t, 5*time.Minute), contexts: map[string]string{}}
	if g.c, err = client.New(url, token); err != nil {
		t.Fatal(err)
	}
	defer g.c.Close()
	s, err := g.c.Create(g.ctx, wire.Create{Name: "conformance"})
	if err != nil {
		t.Fatal(err)
	}
	g.id = string(s.ID)
	for _, step := range steps {
		v, err := g.call(step.Call, step.Args)
		b, _ := json.Marshal(v)
		var got any
		json.Unmarshal(b, &got)
		switch {
		case err != nil && string(sandbar.CodeOf(err)) == step.Error:
		case err != nil || step.Error != "" || !reflect.DeepEqual(got, step.Want):
			t.Errorf("%s %v: %v, %v; want %v %s", step.Call, step.Args, got, err, step.Want, step.Error)
		}
	}
	if err := g.c.Stop(g.ctx, g.id); err != nil {
		t.Error(err)
	}
}

// exec runs a shell command and returns both outputs and the exit code, -1 without one.
func (g *goClient) exec(id string, x wire.Exec, command string, stdin io.Reader) (stdout, stderr string, code int, err error) {
	var out, errs bytes.Buffer
	x.Args = []string{"sh", "-c", command}
	r, err := g.c.Exec(g.ctx, id, x, client.Streams{Stdin: stdin, Stdout: &out, Stderr: &errs})
	code = -1
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	return out.String(), errs.String(), code, err
}

func (g *goClient) call(name string, args []any) (any, error) {
	text := func(i int) string { s, _ := args[i].(string); return s }
	number := func(i int) int { f, _ := args[i].(float64); return int(f) }
	switch name {
	case "run":
		out, errs, code, err := g.exec(g.id, wire.Exec{}, text(0), nil)
		return []any{out, errs, code}, err
	case "run_env":
		out, errs, code, err := g.exec(g.id, wire.Exec{Env: map[string]string{"A": "b c"}, Dir: text(2)}, text(0), nil)
		return []any{out, errs, code}, err
	case "run_timeout":
		_, _, code, err := g.exec(g.id, wire.Exec{Timeout: wire.Seconds(time.Second / 2)}, text(0), nil)
		return code, err
	case "run_check":
		_, _, code, err := g.exec(g.id, wire.Exec{}, text(0), nil)
		return code, err
	case "input":
		out, _, _, err := g.exec(g.id, wire.Exec{}, text(0), strings.NewReader(strings.Repeat(text(1), number(2))))
		return out, err
	case "start":
		return g.start(text(0))
	case "kill":
		return g.kill(text(0))
	case "write":
		return nil, g.c.Upload(g.ctx, g.id, text(0), strings.NewReader(text(1)), int64(len(text(1))), 0, true)
	case "read":
		d, err := g.c.Download(g.ctx, g.id, text(0))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		b, err := io.ReadAll(d)
		return string(b), err
	case "exists":
		d, err := g.c.Download(g.ctx, g.id, text(0))
		if err == nil {
			return true, d.Close()
		}
		if sandbar.CodeOf(err) == sandbar.NotFound || sandbar.CodeOf(err) == sandbar.Invalid { // Invalid: a directory
			return false, nil
		}
		return false, err
	case "list":
		all, err := g.c.Dir(g.ctx, g.id, text(0))
		names := []string{}
		for _, e := range all {
			names = append(names, e.Name)
		}
		return names, err
	case "make_dir":
		return nil, g.c.MakeDir(g.ctx, g.id, text(0))
	case "remove":
		return nil, g.c.Remove(g.ctx, g.id, text(0))
	case "remove_dir":
		return nil, g.c.RemoveDir(g.ctx, g.id, text(0))
	case "code":
		return g.code(text(0), text(1))
	case "png":
		return g.png(text(0))
	case "contexts":
		all, err := g.c.Contexts(g.ctx, g.id)
		languages := []string{}
		for _, c := range all {
			languages = append(languages, c.Language)
		}
		return languages, err
	case "pty":
		x := wire.Exec{Args: []string{"sh"}, Terminal: &wire.TerminalSize{Rows: number(1), Cols: number(2)}}
		r, err := g.c.Exec(g.ctx, g.id, x, client.Streams{Stdin: strings.NewReader(text(0)), Stdout: io.Discard, Stderr: io.Discard})
		return r.ExitCode, err
	case "expose":
		p, err := g.c.Preview(g.ctx, g.id, number(0), false)
		return strings.Contains(p.URL, fmt.Sprintf("%d-", number(0))), err
	case "connect":
		_, err := g.c.Get(g.ctx, text(0))
		return nil, err
	case "events":
		return g.happenings(number(0))
	case "renew":
		s, err := g.c.Renew(g.ctx, g.id, time.Duration(number(0))*time.Second)
		return s.IdleTimeout, err
	case "metrics":
		m, err := g.c.Metrics(g.ctx, g.id)
		return m.Memory > 0 && m.Processes > 0 && m.CPUTimeMS > 0, err
	case "search":
		return g.search(args[0], text(1))
	case "fork":
		if _, _, _, err := g.exec(g.id, wire.Exec{}, text(0), nil); err != nil {
			return nil, err
		}
		return g.inCopy(text(1), false)
	case "snapshot":
		return g.inCopy(text(0), true)
	}
	return nil, errors.New("an unknown call")
}

// happenings makes a sandbox, runs programs in it, and returns the facts of its events.
func (g *goClient) happenings(count int) (any, error) {
	made, err := g.c.Create(g.ctx, wire.Create{})
	if err != nil {
		return nil, err
	}
	id := string(made.ID)
	for code := range count {
		if _, _, _, err := g.exec(id, wire.Exec{}, fmt.Sprintf("exit %d", code), nil); err != nil {
			return nil, err
		}
	}
	if err := g.c.Stop(g.ctx, id); err != nil {
		return nil, err
	}
	q := client.EventQuery{Sandboxes: []string{id}, Types: []string{"sandbox", "program.ended"}, After: client.Oldest}
	if count < 0 {
		q.Types = []string{"none"}
	}
	var seen []any
	err = g.c.Events(g.ctx, q, func(n wire.Notification) error {
		switch n.Type {
		case "sandbox.created":
			seen = append(seen, n.Type)
		case "program.ended":
			seen = append(seen, n.ExitCode)
		case "sandbox.ended":
			seen = append(seen, n.Reason)
			return io.EOF
		}
		return nil
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return seen, err
}

// search makes a sandbox with labels and returns the names of those found.
func (g *goClient) search(labels any, state string) (any, error) {
	made, err := g.c.Create(g.ctx, wire.Create{Name: "labelled", Labels: map[string]string{"kind": "conformance", "n": "1"}})
	if err != nil {
		return nil, err
	}
	s := client.Search{State: state, Labels: map[string]string{}}
	switch l := labels.(type) {
	case map[string]any:
		for k, v := range l {
			s.Labels[k], _ = v.(string)
		}
	case []any:
		for _, k := range l {
			s.HasLabels = append(s.HasLabels, fmt.Sprint(k))
		}
	}
	found, err := g.c.Search(g.ctx, s)
	names := []string{}
	for _, f := range found {
		names = append(names, f.Name)
	}
	return names, errors.Join(err, g.c.Stop(g.ctx, string(made.ID)))
}

func (g *goClient) start(command string) (any, error) {
	p, err := g.c.StartProcess(g.ctx, g.id, command, "", nil)
	if err != nil {
		return nil, err
	}
	var out, errs []string
	err = g.c.Logs(g.ctx, g.id, p.ID, true, func(l client.Line) error {
		if l.Stream == "stdout" {
			out = append(out, l.Data)
		} else {
			errs = append(errs, l.Data)
		}
		return nil
	})
	if err != nil || len(out) == 0 {
		return out, err
	}
	ended, err := g.ended(p.ID)
	return []any{len(out), out[0], out[len(out)-1], errs, ended.ExitCode}, err
}

func (g *goClient) ended(process string) (client.Process, error) {
	all, err := g.c.Processes(g.ctx, g.id)
	for _, p := range all {
		if p.ID == process {
			return p, err
		}
	}
	return client.Process{}, err
}

func (g *goClient) kill(command string) (any, error) {
	p, err := g.c.StartProcess(g.ctx, g.id, command, "", nil)
	if err == nil {
		err = g.c.Kill(g.ctx, g.id, p.ID)
	}
	if err != nil {
		return nil, err
	}
	ended, err := g.ended(p.ID)
	return []any{ended.Status, ended.ExitCode}, err
}

// events runs a cell in the context of a language.
func (g *goClient) events(language, code string) ([]wire.Event, error) {
	if g.contexts[language] == "" {
		c, err := g.c.CreateContext(g.ctx, g.id, wire.CreateContext{Language: language})
		if err != nil {
			return nil, err
		}
		g.contexts[language] = c.ID
	}
	var all []wire.Event
	_, err := g.c.RunCell(g.ctx, g.id, g.contexts[language], wire.Cell{Code: code}, func(e wire.Event) error {
		all = append(all, e)
		return nil
	})
	return all, err
}

func (g *goClient) code(language, code string) (any, error) {
	all, err := g.events(language, code)
	var stdout, value, failed string
	for _, e := range all {
		switch e.Type {
		case wire.EventStdout:
			stdout += e.Text
		case wire.EventResult:
			value = e.Text
		case wire.EventError:
			failed = e.CellError.Name
		}
	}
	return []any{stdout, value, failed}, err
}

func (g *goClient) png(code string) (any, error) {
	all, err := g.events("python", code)
	for _, e := range all {
		if len(e.PNG) > 0 {
			return hex.EncodeToString(e.PNG), err
		}
	}
	return nil, err
}

func (g *goClient) inCopy(command string, pause bool) (any, error) {
	copies, err := g.c.Fork(g.ctx, g.id, 1)
	if err != nil {
		return nil, err
	}
	id := string(copies[0].ID)
	if pause {
		if _, err = g.c.Pause(g.ctx, id); err == nil {
			_, err = g.c.Resume(g.ctx, id)
		}
	}
	if err != nil {
		return nil, err
	}
	out, _, _, err := g.exec(id, wire.Exec{}, command, nil)
	return out, errors.Join(err, g.c.Stop(g.ctx, id))
}
