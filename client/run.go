package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// Command is a shell command.
type Command struct {
	Cmd     string            `json:"cmd"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"cwd,omitempty"`     // default sandbar.DefaultDir
	Timeout wire.Amount       `json:"timeout,omitempty"` // seconds; default the sandbox's
}

// CommandResult is the end of a Command. ExitCode is -1 without one, and Reason then says why.
type CommandResult struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"code"`
	Reason    string `json:"error"`
	Truncated bool   `json:"truncated"` // output beyond the output limit was discarded
}

// CommandError is the error of a command whose exit code is not 0.
type CommandError struct{ Result CommandResult }

// Error returns the message, with the end of the standard error.
func (e *CommandError) Error() string {
	said := strings.TrimSpace(e.Result.Stderr)
	return fmt.Sprintf("the command ended with %d: %s", e.Result.ExitCode, said[max(0, len(said)-500):])
}

// Check returns a *CommandError unless the exit code is 0.
func (r CommandResult) Check() error {
	if r.ExitCode == 0 {
		return nil
	}
	return &CommandError{r}
}

// Run runs a shell command without input to its end. The end of ctx kills it. Exec streams the
// outputs and sends input.
func (c *Client) Run(ctx context.Context, id string, x Command) (CommandResult, error) {
	var r CommandResult
	err := c.call(ctx, http.MethodPost, path(id, "executor", "run"), nil, x, &r)
	return r, err
}

// Execution is what a cell has printed, displayed and raised.
type Execution struct {
	Stdout, Stderr string
	Results        []sandbar.Display
	Error          *sandbar.CellError // what the code has raised
	Outcome        string             // as sandbar.Outcome
	Lost           bool               // the interpreter has ended, and its variables are lost
}

// Text returns the text of the value of the last expression, or "".
func (e *Execution) Text() string {
	for _, r := range e.Results {
		if r.Main {
			return r.Text
		}
	}
	return ""
}

// Output returns all text, for a model to read: both outputs, the value and the traceback.
func (e *Execution) Output() string {
	all := e.Stdout + e.Stderr + e.Text()
	if e.Error != nil {
		all += e.Error.Traceback
	}
	return all
}

// PNG returns the first image, or nil.
func (e *Execution) PNG() []byte {
	for _, r := range e.Results {
		if len(r.PNG) > 0 {
			return r.PNG
		}
	}
	return nil
}

// Add adds an event of a cell.
func (e *Execution) Add(event wire.Event) {
	switch event.Type {
	case wire.EventStdout:
		e.Stdout += event.Text
	case wire.EventStderr:
		e.Stderr += event.Text
	case wire.EventResult:
		e.Results = append(e.Results, event.Display)
	case wire.EventError:
		failed := event.CellError
		e.Error = &failed
	}
}

// RunContext runs a cell in a context to its end.
func (c *Client) RunContext(ctx context.Context, id, name string, cell wire.Cell) (Execution, error) {
	var x Execution
	end, err := c.RunCell(ctx, id, name, cell, func(e wire.Event) error {
		x.Add(e)
		return nil
	})
	x.Outcome, x.Lost = end.Outcome, end.Lost
	return x, err
}

// codeKey is a language in a sandbox.
type codeKey struct{ sandbox, language string }

// codeContext is the context that RunCode uses for a codeKey. A full lock guards id.
type codeContext struct {
	lock chan struct{} // of capacity 1
	id   string        // "" before the first cell
}

// RunCode runs a cell in a context of a language, "" for Python, to its end. Variables stay from
// call to call of this Client: the first call for a language creates the context, and so does the
// next call if the context was removed, or has ended with a pause of the sandbox.
func (c *Client) RunCode(ctx context.Context, id, language string, cell wire.Cell) (Execution, error) {
	key := codeKey{id, language}
	for {
		name, kept, err := c.codeContext(ctx, key, "")
		if err != nil {
			return Execution{}, err
		}
		x, err := c.RunContext(ctx, id, name, cell)
		if !kept || sandbar.CodeOf(err) != sandbar.NotFound {
			return x, err
		}
		if _, _, err := c.codeContext(ctx, key, name); err != nil {
			return Execution{}, err
		}
	}
}

// codeContext returns the context of a key, and whether it was there before. It replaces the one
// that is called gone.
func (c *Client) codeContext(ctx context.Context, key codeKey, gone string) (name string, kept bool, err error) {
	added, _ := c.contexts.LoadOrStore(key, &codeContext{lock: make(chan struct{}, 1)})
	x := added.(*codeContext)
	select {
	case x.lock <- struct{}{}:
		defer func() { <-x.lock }()
	case <-ctx.Done():
		return "", false, sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
	}
	if x.id != gone {
		return x.id, true, nil
	}
	made, err := c.CreateContext(ctx, key.sandbox, wire.CreateContext{Language: key.language})
	if err != nil {
		x.id = ""
		return "", false, err
	}
	x.id = made.ID
	return made.ID, false, nil
}

// forget removes the contexts of RunCode of a sandbox that has ended.
func (c *Client) forget(id string) {
	c.contexts.Range(func(key, _ any) bool {
		if key.(codeKey).sandbox == id {
			c.contexts.Delete(key)
		}
		return true
	})
}
