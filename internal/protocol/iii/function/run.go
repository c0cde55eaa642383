package function

import (
	"context"
	"encoding/json"
	"errors"
)

// runRequest has the parameters of sandbox::run.
type runRequest struct {
	raw        request
	image      string
	code, lang string
	files      []runFile
	env        environment
	stdin      *string
	timeout    *uint64
	keep       bool
}

// runResult is the result of the code.
type runResult struct {
	execResult
	SandboxID string `json:"sandbox_id,omitempty"` // if the sandbox was kept
}

// run implements sandbox::run: create, write, exec and stop in one call.
func (f *Functions) run(ctx context.Context, data json.RawMessage) (any, error) {
	var req runRequest
	var err error
	req.raw, err = decode(data, "RunRequest", must(text("image", &req.image)), must(text("code", &req.code)),
		must(text("lang", &req.lang)), runFiles("files", &req.files), variables("env", &req.env),
		optional(text, "stdin", &req.stdin), optional(number[uint64], "timeout_ms", &req.timeout),
		boolean("keep_sandbox", &req.keep))
	if err != nil {
		return nil, err
	}
	b, _, err := f.make(ctx, createRequest{image: req.image, env: req.env})
	if err != nil {
		return nil, withStep("create", "", err)
	}
	r, err := f.runIn(ctx, b, req)
	if !req.keep {
		_, _, _ = f.markStopped(b.sandbox.ID(), false) // it may have ended by itself
	}
	if err != nil {
		return nil, err
	}
	res := runResult{execResult: *r}
	if req.keep {
		res.SandboxID = b.id
	}
	return res, nil
}

// runIn executes all steps inside the sandbox.
func (f *Functions) runIn(ctx context.Context, b *sandboxEntry, req runRequest) (*execResult, error) {
	for _, file := range req.files {
		if err := f.writeText(ctx, b, file.path, file.content); err != nil {
			return nil, withStep("fs::write (sibling file)", b.id, err)
		}
	}
	interpreter, ext := interpreterOf(req.lang)
	if interpreter == posixShell {
		interpreter = shellOf(ctx, b)
	}
	path := "/tmp/run." + ext
	if err := f.writeText(ctx, b, path, req.code); err != nil {
		return nil, withStep("fs::write (code)", b.id, err)
	}
	r, err := f.execute(ctx, execRequest{id: b.id, command: command{cmd: interpreter, args: []string{path}},
		stdin: req.stdin, env: req.env, timeout: req.timeout})
	if err != nil {
		return nil, withStep("exec", b.id, err)
	}
	return r, nil
}

// writeText writes a text into the sandbox.
func (f *Functions) writeText(ctx context.Context, b *sandboxEntry, path, text string) error {
	w, err := f.openWrite(ctx, b, writeRequest{path: path, mode: 0o644, parents: true})
	if err != nil {
		return err
	}
	return writeAll(w, path, []byte(text))
}

// interpreterOf returns a language's interpreter and file extension.
func interpreterOf(lang string) (program, ext string) {
	switch lang {
	case "node", "js", "javascript":
		return "node", "js"
	case "python", "py":
		return "python3", "py"
	case "shell", "sh", "bash":
		return posixShell, "sh"
	}
	return lang, "txt"
}

// posixShell exists in every image. Code of the language shell is run by bash, if there is one.
const posixShell = "/bin/sh"

// shellOf returns a sandbox's preferred shell.
func shellOf(ctx context.Context, b *sandboxEntry) string {
	files := b.sandbox.FS()
	for _, bash := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if _, _, err := follow(ctx, files, bash); err == nil {
			return bash
		}
	}
	return posixShell
}

// withStep adds the failed step to an error. Its fix is not a payload to send: it names the step
// and a sandbox that the caller wanted to keep.
func withStep(step, id string, err error) error {
	var e *failure
	if !errors.As(err, &e) {
		return err
	}
	during := "during sandbox::run step `" + step + "`"
	return &failure{code: e.code, message: during + " (sandbox_id=" + id + "): " + e.message, partial: e.partial,
		fix: map[string]any{"context": during, "inner_code": e.code, "sandbox_id": id}}
}
