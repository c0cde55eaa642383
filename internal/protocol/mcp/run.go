package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// ended is the part of the results of run_code and run_command that says how the program ended.
type ended struct {
	Sandbox    string  `json:"sandbox" jsonschema:"id of the sandbox"`
	Outcome    string  `json:"outcome" jsonschema:"exited, signaled, oom, output_limit, timeout, cancelled or lost"`
	Stdout     string  `json:"stdout" jsonschema:"standard output; may be cut"`
	Stderr     string  `json:"stderr" jsonschema:"standard error; may be cut"`
	Cut        bool    `json:"cut" jsonschema:"parts of the output are left out"`
	OutputFile string  `json:"output_file,omitempty" jsonschema:"file in the sandbox with all output, if it was cut"`
	DurationMS float64 `json:"duration_ms"`
}

// limitsOf returns the limits of one call. timeout is in seconds; 0 is the default.
func (s *Server) limitsOf(timeout float64) (sandbar.Limits, error) {
	def, _, most := s.engine.Limits()
	l := sandbar.Limits{Timeout: def.Timeout, Output: maxOutput}
	if most.Output > 0 {
		l.Output = min(l.Output, most.Output)
	}
	if timeout == 0 {
		return l, nil
	}
	// A number beyond that of a Duration is out of range for every operator.
	if timeout < 0.001 || timeout > 1e9 || most.Timeout > 0 && timeout > most.Timeout.Seconds() {
		return l, invalid("timeout", fmt.Sprintf("timeout is %g s, which is out of range", timeout), "allowed: 0.001 s or more"+upTo(most.Timeout))
	}
	l.Timeout = time.Duration(timeout * float64(time.Second))
	return l, nil
}

// upTo describes the largest time limit, if there is one.
func upTo(most time.Duration) string {
	if most <= 0 {
		return ""
	}
	return ", at most " + most.String()
}

type commandArgs struct {
	Command string            `json:"command" jsonschema:"shell command"`
	Dir     string            `json:"dir,omitempty" jsonschema:"working directory; default: /home/user"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"further environment variables"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"standard input"`
	Timeout float64           `json:"timeout,omitempty" jsonschema:"time limit in seconds"`
	Sandbox string            `json:"sandbox,omitempty"`
}

type commandResult struct {
	ended
	ExitCode *int `json:"exit_code,omitempty" jsonschema:"exit code, if the outcome is exited"`
	Signal   int  `json:"signal,omitempty" jsonschema:"number of the signal that ended the command"`
}

func (s *Server) runCommand(ctx context.Context, c call, in commandArgs) (*sdk.CallToolResult, commandResult, error) {
	var out commandResult
	if in.Command == "" {
		return nil, out, invalid("command", "the command is empty", "")
	}
	err := checkSize("command", len(in.Command), maxCommand, "write it to a file with write_file and run that")
	if err == nil {
		err = checkSize("stdin", len(in.Stdin), maxContent, "write it to a file with write_file and redirect that")
	}
	if err == nil {
		err = checkPath(in.Dir)
	}
	if err != nil {
		return nil, out, err
	}
	limits, err := s.limitsOf(in.Timeout)
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	r := newRecord(ctx, c)
	result, err := b.Exec(ctx, sandbar.Cmd{Args: []string{"/bin/sh", "-c", in.Command}, Dir: in.Dir, Env: in.Env}, strings.NewReader(in.Stdin), limits, commandSink{r})
	if err != nil {
		return nil, out, err
	}
	out.ended = r.end(ctx, b, result.Outcome, result.Duration)
	status := ""
	switch result.Outcome {
	case sandbar.Exited:
		out.ExitCode = &result.ExitCode
		if result.ExitCode != 0 {
			status = fmt.Sprintf("exit code %d", result.ExitCode)
		}
	case sandbar.Signaled:
		out.Signal = result.Signal
		status = fmt.Sprintf("ended by signal %d", result.Signal)
		if why := sandbar.ForeignCall(result.Signal); why != "" {
			status = why
		}
	default:
		status = describe(result.Outcome, limits)
	}
	return r.result(status, "exit code 0, no output"), out, nil
}

// describe says why a program did not end by itself.
func describe(o sandbar.Outcome, l sandbar.Limits) string {
	switch o {
	case sandbar.Exited, sandbar.Signaled:
		return ""
	case sandbar.OutOfMemory:
		return "ended: the sandbox's memory limit was reached"
	case sandbar.OutputLimit:
		return fmt.Sprintf("ended: it wrote more than %d bytes", l.Output)
	case sandbar.TimedOut:
		return fmt.Sprintf("ended: the time limit of %s passed; a longer one is the argument timeout", l.Timeout)
	case sandbar.Cancelled:
		return "ended: the call was cancelled"
	}
	return "ended: the sandbox died"
}

type codeArgs struct {
	Code     string            `json:"code" jsonschema:"source text"`
	Language string            `json:"language,omitempty" jsonschema:"python (default), javascript, typescript or bash"`
	Context  string            `json:"context,omitempty" jsonschema:"name of an interpreter with variables of its own; default: one for each language"`
	Restart  bool              `json:"restart,omitempty" jsonschema:"start the interpreter again first, without its variables"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"environment variables for this call"`
	Timeout  float64           `json:"timeout,omitempty" jsonschema:"time limit in seconds"`
	Sandbox  string            `json:"sandbox,omitempty"`
}

type codeResult struct {
	ended
	Language string      `json:"language"`
	Context  string      `json:"context" jsonschema:"name of the interpreter"`
	Count    int         `json:"execution_count" jsonschema:"number of this execution in the interpreter"`
	Failed   bool        `json:"failed" jsonschema:"the code raised an error, or its interpreter ended"`
	Lost     bool        `json:"lost" jsonschema:"the interpreter ended, and its variables are gone"`
	Results  []codeValue `json:"results"`
	Error    *codeError  `json:"error,omitempty"`
}

// codeValue is a rich result of a cell.
type codeValue struct {
	Text     string   `json:"text,omitempty" jsonschema:"text/plain; may be cut"`
	Markdown string   `json:"markdown,omitempty"`
	LaTeX    string   `json:"latex,omitempty"`
	JSON     any      `json:"json,omitempty"`
	Data     any      `json:"data,omitempty" jsonschema:"a table by its columns"`
	Chart    any      `json:"chart,omitempty" jsonschema:"data of a chart"`
	Main     bool     `json:"main,omitempty" jsonschema:"the value of the last expression"`
	Formats  []string `json:"formats" jsonschema:"all formats that the value has; images are content of the result"`
	File     string   `json:"file,omitempty" jsonschema:"file in the sandbox with a format that the result leaves out"`
}

type codeError struct {
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`
}

// maxName bounds the name of a context, in bytes.
const maxName = 100

func (s *Server) runCode(ctx context.Context, c call, in codeArgs) (*sdk.CallToolResult, codeResult, error) {
	out := codeResult{Language: in.Language, Context: in.Context, Results: []codeValue{}}
	if out.Language == "" {
		out.Language = "python"
	}
	if out.Context == "" {
		out.Context = "default"
	}
	if err := checkSize("context", len(in.Context), maxName, ""); err != nil {
		return nil, out, err
	}
	limits, err := s.limitsOf(in.Timeout)
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	k, err := b.interpreter(ctx, out.Language, out.Context)
	if err == nil && in.Restart {
		err = k.Restart(ctx)
	}
	if err != nil {
		return nil, out, err
	}
	r := newRecord(ctx, c)
	sink := &codeSink{record: r, box: b, out: &out}
	end, err := k.Run(ctx, engine.Cell{Code: in.Code, Env: in.Env, Timeout: limits.Timeout, Output: limits.Output}, sink)
	if err != nil {
		return nil, out, err
	}
	sink.save(ctx)
	out.ended = r.end(ctx, b, end.Outcome, end.Duration)
	out.Count, out.Failed, out.Lost = end.Count, end.Failed, end.Lost
	status := describe(end.Outcome, limits)
	if end.Lost {
		status = strings.TrimPrefix(status+"; the interpreter ended, and its variables are gone", "; ")
	}
	return r.result(status, "no output"), out, nil
}

// interpreter returns the context with a name, and starts it if there is none.
func (b *box) interpreter(ctx context.Context, language, name string) (*engine.Context, error) {
	select {
	case b.starting <- struct{}{}:
		defer func() { <-b.starting }()
	case <-ctx.Done():
		return nil, sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
	}
	key := language + " " + name
	b.mu.Lock()
	k := b.contexts[key]
	b.mu.Unlock()
	if k != nil {
		if _, err := b.Context(k.ID()); err == nil {
			return k, nil
		}
	}
	k, err := b.CreateContext(ctx, engine.ContextSpec{Language: language})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.contexts[key] = k
	return k, nil
}
