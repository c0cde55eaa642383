package mcp

import (
	"context"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
)

// Bounds of arguments and results, in bytes.
const (
	maxCommand  = 100 << 10 // of a command; execve(2) bounds one argument at 128 KiB
	maxContent  = 4 << 20   // of write_file, and of a file that edit_file and search_files read
	maxUpload   = 8 << 20   // of upload, decoded
	maxDownload = 4 << 20   // of download and of a resource
	maxRead     = 256 << 10 // of read_file
	maxPath     = 4095
	maxPattern  = 1000
	maxOutput   = 8 << 20  // of a program, before it is ended
	maxText     = 32 << 10 // of output in a result
	maxImages   = 8 << 20  // of all images of a result
	maxProgress = 1 << 20  // of output in progress notifications of a call
)

// kindOf are the hints of a tool.
type kindOf int

const (
	reads    kindOf = iota // changes nothing
	adds                   // changes, and destroys nothing
	destroys               // can replace or remove
)

// call is a call of a tool.
type call struct {
	session *session
	request *sdk.CallToolRequest
}

// add adds a tool. open: it can reach beyond the sandboxes.
func add[In, Out any](s *Server, name, title, description string, kind kindOf, open bool, do func(context.Context, call, In) (*sdk.CallToolResult, Out, error)) {
	sdk.AddTool(s.sdk, &sdk.Tool{
		Name: name, Title: title, Description: description,
		InputSchema: schemaOf[In](),
		Annotations: &sdk.ToolAnnotations{Title: title, ReadOnlyHint: kind == reads, DestructiveHint: new(kind == destroys), IdempotentHint: kind == reads, OpenWorldHint: &open},
	}, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		var none Out
		x, ctx, end, err := s.begin(ctx, req.Session)
		if err != nil {
			return nil, none, err
		}
		defer end()
		return do(ctx, call{x, req}, in)
	})
}

// schemaOf returns the schema of a tool's arguments.
func schemaOf[In any]() *jsonschema.Schema {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // the types are constant, and tests add all tools
	}
	if p := schema.Properties["sandbox"]; p != nil {
		p.Description = "id of a sandbox of this session; default: the session's own sandbox"
	}
	if p := schema.Properties["path"]; p != nil {
		p.Description = fmt.Sprintf("path in the sandbox; a relative one starts at %s", sandbar.DefaultDir)
	}
	return schema
}

// text is a result of one text.
func text(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// checkPath checks the size of a path.
func checkPath(path string) error {
	if len(path) > maxPath {
		return sandbar.Errorf(sandbar.TooLarge, "the path has %d bytes; at most %d are allowed", len(path), maxPath)
	}
	return nil
}

// checkSize checks the size of an argument. part is how to do it with less at once.
func checkSize(field string, n, most int, part string) error {
	if n > most {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: field, Message: fmt.Sprintf("%s has %d bytes; at most %d are allowed", field, n, most), Fix: part}
	}
	return nil
}

// bound returns n if it is in the range from 1 to most, and def for 0.
func bound(field string, n, def, most int) (int, error) {
	switch {
	case n == 0:
		return def, nil
	case n < 0 || n > most:
		return 0, invalid(field, fmt.Sprintf("%s is %d, which is out of range", field, n), fmt.Sprintf("allowed: 1 to %d", most))
	}
	return n, nil
}

// addTools adds all tools.
func (s *Server) addTools() {
	def, _, most := s.engine.Limits()
	limits := fmt.Sprintf("Time limit: %s by default%s. More than %d MiB of output ends the program. ", def.Timeout, upTo(most.Timeout), maxOutput>>20) +
		fmt.Sprintf("A result has at most %d KiB of output; the rest is in a file that the result names.", maxText>>10)
	add(s, "run_code", "Run code", "Run code in an interpreter that stays: variables, imports and open files are kept from call to call, as in a notebook. "+
		"The value of the last expression, images (such as matplotlib figures) and tables are part of the result. "+limits, destroys, true, s.runCode)
	add(s, "run_command", "Run a command", "Run a shell command (sh -c) to its end. Its files stay; variables do not. "+
		"Start a server in the background with redirected output: `nohup COMMAND >log 2>&1 &`. "+limits, destroys, true, s.runCommand)
	add(s, "read_file", "Read a file", fmt.Sprintf("Read a text file or an image. At most %d KiB at once; next_offset continues. Other binary files: download.", maxRead>>10),
		reads, false, s.readFile)
	add(s, "write_file", "Write a file", fmt.Sprintf("Create or replace a text file, or append to it. Parent directories are made. At most %d MiB at once.", maxContent>>20),
		destroys, false, s.writeFile)
	add(s, "edit_file", "Edit a file", fmt.Sprintf("Replace a text in a file. The text must occur exactly once, unless all is true. Files up to %d MiB.", maxContent>>20),
		destroys, false, s.editFile)
	add(s, "list_files", "List files", fmt.Sprintf("List a directory, by default %d and at most %d entries.", defaultEntries, maxEntries), reads, false, s.listFiles)
	add(s, "search_files", "Search files", fmt.Sprintf("Search the lines of all text files below a directory with a regular expression (RE2 syntax). "+
		"At most %d matches and %d files; files of more than %d MiB, binary files and symbolic links are left out.", maxMatches, maxWalk, maxContent>>20),
		reads, false, s.searchFiles)
	add(s, "upload", "Upload a file", fmt.Sprintf("Write binary data, in base64, to a file in the sandbox. At most %d MiB at once; larger files in parts with append.", maxUpload>>20),
		destroys, false, s.upload)
	add(s, "download", "Download a file", fmt.Sprintf("Return the bytes of a file as an embedded resource. At most %d MiB at once; next_offset continues.", maxDownload>>20),
		reads, false, s.download)
	add(s, "create_sandbox", "Create a sandbox", fmt.Sprintf("Create a further sandbox, with other limits, another image or a network. "+
		"A session has at most %s; they end with it.", count(s.options.MaxSandboxes, "sandbox")), adds, true, s.createSandbox)
	add(s, "list_sandboxes", "List sandboxes", "List the sandboxes and snapshots of this session.", reads, false, s.listSandboxes)
	add(s, "stop_sandbox", "Stop a sandbox", "End a sandbox with its programs and files, or remove a snapshot.", destroys, false, s.stopSandbox)
	add(s, "expose_port", "Expose a port", "Give a TCP port of a server in the sandbox a URL that the user can open in a browser. The URL has a token, unless public is true.",
		adds, true, s.exposePort)
	add(s, "snapshot", "Take a snapshot", fmt.Sprintf("Save a copy of a sandbox, which goes on. A session has at most %s; they end with it. "+
		"Interpreters of run_code are not saved.", count(maxSnapshots, "snapshot")), adds, false, s.snapshot)
	add(s, "restore", "Restore a snapshot", "Make a new sandbox from a snapshot. The snapshot can be restored again.", adds, false, s.restore)
}
