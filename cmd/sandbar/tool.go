package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
	"github.com/sandbar-dev/sandbar/sandbox"
)

func (a *app) toolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool [flags] < REQUEST",
		Short: "Answer one request of an agent to run code",
		Long: `Answer one request of an agent to run code. The request is a JSON object on
standard input; the answer is a short text for a model on standard output. Any
framework that can start a program can offer this command as a tool. --schema
prints the JSON schema of the request.

The answer is the program's stdout, "(no output)" if that is empty, and for a
failed program "Error (exit_code=N): " and its stderr. Each is truncated after
code.max_output (SANDBOX_MAX_OUTPUT_KB, default 10 KiB). For a request that cannot
be run the answer is "Error: " and the reason. Every answer is on standard output,
also for an error in the configuration.

The operator chooses the driver: SANDBOX_TYPE, --driver or the configuration. A
request may name another driver only if it is in allowed_drivers.

Exit code: 0 if the code ran, however it ended, or was blocked because of its
imports; 2 for an invalid request or configuration; 125 if Sandbar could not run the
code.`,
		Example: `  echo '{"code": "print(2+2)"}' | sandbar tool
  echo '{"code": "console.log(1)", "language": "javascript", "timeout": 5}' | sandbar tool --json
  SANDBOX_TYPE=docker sandbar tool < request.json
  sandbar tool --schema`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.configuration(cmd, driverSetting)
			if schema, _ := cmd.Flags().GetBool("schema"); schema && err == nil {
				return a.printToolSchema(cfg)
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			var answer toolAnswer
			if err == nil {
				answer, err = a.tool(cmd, cfg)
			}
			return a.answer(answer, err, asJSON)
		},
	}
	cmd.Flags().Bool("schema", false, "print the JSON schema of a request and exit")
	cmd.Flags().Bool("json", false, "print the answer's text, the result and the error as JSON")
	a.settings(cmd, driverSetting)
	return cmd
}

// toolAnswer is the output of --json. The names are stable.
type toolAnswer struct {
	Answer string          `json:"answer"`
	Result *sandbox.Result `json:"result"` // null unless the code ran or was blocked
	Error  *toolError      `json:"error"`  // null if Result is set
}

type toolError struct {
	Code    sandbar.Code `json:"code"`
	Field   string       `json:"field,omitempty"`
	Message string       `json:"message"`
}

// tool runs the request on standard input.
func (a *app) tool(cmd *cobra.Command, cfg *config.Config) (toolAnswer, error) {
	if term.IsTerminal(int(a.stdin.Fd())) {
		return toolAnswer{}, usagef(cmd, "no request on standard input (allowed: a JSON object; --schema prints its schema)")
	}
	text, err := readToolRequest(a.stdin, cfg)
	if err != nil {
		return toolAnswer{}, err
	}
	request, err := decodeTool(text)
	if err != nil {
		return toolAnswer{}, err
	}
	box, err := a.openTool(cfg, request.Driver)
	if err != nil {
		return toolAnswer{}, err
	}
	ctx, stop := interruptible(context.Background())
	defer stop()
	result, err := box.Execute(ctx, request)
	if cerr := box.Close(); cerr != nil {
		a.warn("the sandbox could not be removed: %v (\"sandbar gc\" removes leftovers)", cerr)
	}
	if err != nil {
		return toolAnswer{}, err
	}
	return toolAnswer{Answer: result.Compact(), Result: &result}, nil
}

// openTool makes the platform for one request. It opens all allowed drivers if the
// request names another driver than the configured one.
func (a *app) openTool(cfg *config.Config, driver string) (*sandbox.Sandbox, error) {
	log := commandLogger(cfg, a.stderr)
	open := a.newDriver
	if driver != "" && driver != cfg.Driver {
		open = a.newDrivers
	}
	ds, err := open(cfg, log)
	if err != nil {
		return nil, err
	}
	e, err := a.newEngine(cfg, ds, log, nil)
	if err != nil {
		return nil, err
	}
	return sandbox.FromEngine(e, sandbox.Rules{Timeout: cfg.Code.Timeout, MaxOutput: cfg.Code.MaxOutput, Network: cfg.Code.Network, Version: thisBuild().Version}), nil
}

// maxToolStdin is the largest "stdin" of a request, in bytes.
const maxToolStdin = 1 << 20

// readToolRequest reads a request of bounded size. JSON may escape one byte as six ("\u0001").
func readToolRequest(r io.Reader, cfg *config.Config) ([]byte, error) {
	most := 6*(cfg.MaxCode+cfg.MaxEnv+maxToolStdin) + 64<<10
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Invalid, "the request cannot be read: %w", err)
	}
	if int64(len(text)) > most {
		return nil, sandbar.Errorf(sandbar.TooLarge, "the request is larger than %s, the maximum", config.FormatSize(most))
	}
	return text, nil
}

// decodeTool parses and checks a request.
func decodeTool(text []byte) (sandbox.Request, error) {
	var r sandbox.Request
	var stdin string
	given := map[string]bool{}
	err := strictjson.Object("the request", text,
		recordPresence(given, strictjson.Text("code", &r.Code)), strictjson.Text("language", &r.Language), toolTimeout(&r.Timeout),
		strictjson.List("args", &r.Args), strictjson.Texts("env", &r.Env), strictjson.Text("stdin", &stdin), strictjson.Text("driver", &r.Driver))
	switch {
	case err != nil:
		return r, err
	case !given["code"]:
		return r, &sandbar.Error{Code: sandbar.Invalid, Field: "code", Message: "code is missing", Fix: "it is the source text to run, a string"}
	case len(stdin) > maxToolStdin:
		return r, &sandbar.Error{Code: sandbar.TooLarge, Field: "stdin", Message: "stdin is larger than " + config.FormatSize(maxToolStdin)}
	}
	r.Stdin = strings.NewReader(stdin)
	return r, nil
}

// recordPresence returns f with a Set that also records the field's name in given.
func recordPresence(given map[string]bool, f strictjson.Field) strictjson.Field {
	set := f.Set
	f.Set = func(raw json.RawMessage) error {
		given[f.Name] = true
		return set(raw)
	}
	return f
}

// toolTimeout is the field timeout, in seconds.
func toolTimeout(at *time.Duration) strictjson.Field {
	return strictjson.Field{Name: "timeout", Set: func(raw json.RawMessage) error {
		var n float64
		if json.Unmarshal(raw, &n) != nil || n <= 0 || n > math.MaxInt64/float64(time.Second)/2 {
			return errors.New("must be a number of seconds above 0")
		}
		*at = max(time.Duration(n*float64(time.Second)), 1)
		return nil
	}}
}

// answer prints t, or the answer for err if that is not nil, and returns the exit code as an error.
func (a *app) answer(t toolAnswer, err error, asJSON bool) error {
	code := 0
	if err != nil {
		t, code = toolFailure(err)
	}
	var werr error
	if asJSON {
		werr = cli.WriteReport(a.stdout, t)
	} else {
		_, werr = fmt.Fprintln(a.stdout, strings.TrimSuffix(t.Answer, "\n"))
	}
	if werr != nil {
		return cli.OutputError(werr)
	}
	return cli.Exit(code)
}

// toolFailure returns the answer for an error, and the exit code.
func toolFailure(err error) (toolAnswer, int) {
	var lines []string
	for _, e := range cli.Each(err) {
		lines = append(lines, e.Error())
	}
	e := sandbar.AsError(err)
	if u, ok := errors.AsType[*cli.UsageError](err); ok {
		e = sandbar.Errorf(sandbar.Invalid, "%s", u.Message)
	}
	code := cli.ExitPlatform
	if e.Code == sandbar.Invalid || e.Code == sandbar.TooLarge || e.Field == "language" && e.Err == nil || e.Field == "driver" && e.Code == sandbar.Unsupported {
		code = cli.ExitUsage
	}
	message := strings.Join(lines, "; ")
	return toolAnswer{Answer: "Error: " + message, Error: &toolError{e.Code, e.Field, message}}, code
}

// printToolSchema prints the schema of the requests that cfg allows.
func (a *app) printToolSchema(cfg *config.Config) error {
	schema, err := toolSchema(cfg, a.availableLanguages(cfg))
	if err != nil {
		return err
	}
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(schema)
}

// probeTimeout bounds the probe for interpreters. The schema includes a language whose
// probe has not finished by then.
const probeTimeout = 10 * time.Second

// availableLanguages returns the languages whose interpreter exists in a sandbox with these
// settings. It returns nil if no sandbox can be made; the next request then reports the error.
func (a *app) availableLanguages(cfg *config.Config) []string {
	log := slog.New(slog.DiscardHandler)
	ds, err := platform.OpenDriver(cfg, a.factories, log)
	if err != nil {
		return nil
	}
	e, err := platform.NewEngine(cfg, ds, log, func(c *engine.Config) { c.CheckLanguages = true })
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	e.Probe(ctx)
	a.removeSandbox(e)
	return e.Available()
}

// toolSchema returns the JSON schema of a request. available are the languages to list;
// if empty, all of the catalogue.
func toolSchema(cfg *config.Config, available []string) (map[string]any, error) {
	languages, err := cfg.Catalogue()
	if err != nil {
		return nil, err
	}
	names := languages.Names()
	if len(available) > 0 {
		names = available
	}
	byDefault := "python"
	if !slices.Contains(names, byDefault) {
		byDefault = ""
	}
	type object = map[string]any
	timeout := object{"type": "number", "exclusiveMinimum": 0, "description": "The most seconds it may take."}
	if d := cfg.Limits.Default.Timeout; d > 0 {
		timeout["default"] = d.Seconds()
	}
	if m := cfg.Limits.Max.Timeout; m > 0 {
		timeout["maximum"] = m.Seconds()
	}
	if d := cfg.Code.Timeout; d > 0 {
		timeout["default"] = d.Seconds()
		timeout["description"] = "Accepted and without effect: every program has the time limit that is the default."
	}
	language := object{"type": "string", "enum": names, "description": "The language of the code."}
	required := []string{"code"}
	if byDefault != "" {
		language["default"] = byDefault
	} else {
		required = append(required, "language")
	}
	properties := object{
		"code":     object{"type": "string", "maxLength": cfg.MaxCode, "description": "The source text. It runs as a program of its own; print what you want to see."},
		"language": language,
		"timeout":  timeout,
		"args":     object{"type": "array", "items": object{"type": "string"}, "description": "Arguments of the program."},
		"env":      object{"type": "object", "additionalProperties": object{"type": "string"}, "description": "Environment variables of the program."},
		"stdin":    object{"type": "string", "description": "What the program reads from standard input."},
	}
	if len(cfg.AllowedDrivers) > 0 {
		all := cfg.AllowedDrivers
		if cfg.Driver != config.AutoDriver && !slices.Contains(all, cfg.Driver) {
			all = append([]string{cfg.Driver}, all...)
		}
		properties["driver"] = object{"type": "string", "enum": all, "description": "What isolates the program. Leave it out unless you were told to name one."}
	}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "run_code",
		"description": "Runs code in a fresh, isolated sandbox without a network and returns what it printed. Nothing is kept from one run to the next.",
		"type":        "object", "properties": properties, "required": required, "additionalProperties": false,
	}, nil
}
