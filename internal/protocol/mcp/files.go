package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

const (
	defaultEntries = 200
	maxEntries     = 1000
	maxWalk        = 20_000 // files and directories that one call visits
	maxMatches     = 200
	maxLine        = 300 // bytes of a line in a match
	defaultRead    = 64 << 10
	defaultPart    = 1 << 20 // of download
)

// put writes a file in one step.
func put(ctx context.Context, files sandbar.FS, name string, data []byte, o sandbar.CreateOptions) error {
	w, err := files.Create(ctx, name, o)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Commit()
}

// part reads at most n bytes of a file from an offset.
func part(ctx context.Context, files sandbar.FS, name string, offset int64, n int) ([]byte, sandbar.FileInfo, error) {
	if err := checkPath(name); err != nil {
		return nil, sandbar.FileInfo{}, err
	}
	f, err := files.Open(ctx, name)
	if err != nil {
		return nil, sandbar.FileInfo{}, err
	}
	defer f.Close()
	info := f.Info()
	if offset < 0 || offset > info.Size {
		return nil, info, invalid("offset", fmt.Sprintf("offset %d is not in the file", offset), fmt.Sprintf("allowed: 0 to %d", info.Size))
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, info, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(n)))
	return data, info, err
}

// whole reads a file of at most maxContent bytes.
func whole(ctx context.Context, files sandbar.FS, name string) ([]byte, sandbar.FileInfo, error) {
	data, info, err := part(ctx, files, name, 0, maxContent+1)
	if err == nil && len(data) > maxContent {
		err = &sandbar.Error{Code: sandbar.TooLarge, Field: "path", Message: fmt.Sprintf("the file has %d bytes; at most %d are allowed", info.Size, maxContent),
			Fix: "use a program in the sandbox, such as sed, with run_command"}
	}
	return data, info, err
}

type readArgs struct {
	Path    string `json:"path"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"byte at which to begin"`
	Limit   int    `json:"limit,omitempty" jsonschema:"bytes to read; default 65536, at most 262144"`
	Sandbox string `json:"sandbox,omitempty"`
}

type readResult struct {
	Sandbox    string `json:"sandbox"`
	Path       string `json:"path"`
	Size       int64  `json:"size" jsonschema:"size of the file in bytes"`
	Offset     int64  `json:"offset"`
	Bytes      int    `json:"bytes" jsonschema:"bytes that were read"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"offset of the rest; absent at the end of the file"`
	MIMEType   string `json:"mime_type"`
	Text       string `json:"text,omitempty"`
}

func (s *Server) readFile(ctx context.Context, c call, in readArgs) (*sdk.CallToolResult, readResult, error) {
	out := readResult{Path: in.Path, Offset: in.Offset}
	limit, err := bound("limit", in.Limit, defaultRead, maxRead)
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	data, info, err := part(ctx, b.FS(), in.Path, in.Offset, limit)
	if err != nil {
		return nil, out, err
	}
	out.Size, out.MIMEType = info.Size, http.DetectContentType(data)
	if image := strings.HasPrefix(out.MIMEType, "image/") && in.Offset == 0; image && info.Size <= maxContent {
		if data, _, err = whole(ctx, b.FS(), in.Path); err != nil {
			return nil, out, err
		}
		out.Bytes = len(data)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{Data: data, MIMEType: out.MIMEType}}}, out, nil
	}
	if end := in.Offset + int64(len(data)); end < info.Size {
		if data = truncate.TrimPartialRune(data); len(data) == 0 { // fewer bytes than a character has
			data, _, err = part(ctx, b.FS(), in.Path, in.Offset, utf8.UTFMax)
			if err != nil {
				return nil, out, err
			}
		}
		out.NextOffset = in.Offset + int64(len(data))
	}
	out.Bytes = len(data)
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, out, &sandbar.Error{Code: sandbar.Conflict, Field: "path", Message: fmt.Sprintf("%s is not text (%s, %d bytes)", sandbar.Quote(in.Path, 200), out.MIMEType, info.Size),
			Fix: "use download, or look at it with a program in the sandbox"}
	}
	out.Text = truncate.Text(data)
	res := text("%s", out.Text)
	if out.NextOffset > 0 {
		res.Content = append(res.Content, &sdk.TextContent{Text: fmt.Sprintf("[bytes %d to %d of %d; offset %d continues]", in.Offset, out.NextOffset, info.Size, out.NextOffset)})
	}
	return res, out, nil
}

// modeOf decodes permission bits in octal; "" is the default.
func modeOf(octal string) (fs.FileMode, error) {
	if octal == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(octal, 8, 12)
	if err != nil {
		return 0, invalid("mode", "mode "+sandbar.Quote(octal, 20)+" is not a mode", "allowed: permission bits in octal, such as 755")
	}
	return fs.FileMode(n), nil
}

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Append  bool   `json:"append,omitempty" jsonschema:"append to an existing file"`
	Mode    string `json:"mode,omitempty" jsonschema:"permission bits in octal; default 644"`
	Sandbox string `json:"sandbox,omitempty"`
}

type writeResult struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
	Bytes   int    `json:"bytes" jsonschema:"bytes that were written"`
}

func (s *Server) writeFile(ctx context.Context, c call, in writeArgs) (*sdk.CallToolResult, writeResult, error) {
	if err := checkSize("content", len(in.Content), maxContent, "write it in parts with append"); err != nil {
		return nil, writeResult{}, err
	}
	return s.write(ctx, c, in.Sandbox, in.Path, []byte(in.Content), in.Mode, in.Append)
}

func (s *Server) write(ctx context.Context, c call, sandbox, name string, data []byte, octal string, appending bool) (*sdk.CallToolResult, writeResult, error) {
	out := writeResult{Path: name, Bytes: len(data)}
	mode, err := modeOf(octal)
	if err == nil {
		err = checkPath(name)
	}
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	if err := put(ctx, b.FS(), name, data, sandbar.CreateOptions{Mode: mode, Parents: true, Append: appending}); err != nil {
		return nil, out, err
	}
	return text("wrote %d bytes to %s", len(data), name), out, nil
}

type editArgs struct {
	Path    string `json:"path"`
	Old     string `json:"old" jsonschema:"text to replace, exactly as it is in the file"`
	New     string `json:"new" jsonschema:"text in its place"`
	All     bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
	Sandbox string `json:"sandbox,omitempty"`
}

type editResult struct {
	Sandbox  string `json:"sandbox"`
	Path     string `json:"path"`
	Replaced int    `json:"replaced" jsonschema:"number of replaced occurrences"`
	Size     int    `json:"size" jsonschema:"new size of the file in bytes"`
}

func (s *Server) editFile(ctx context.Context, c call, in editArgs) (*sdk.CallToolResult, editResult, error) {
	out := editResult{Path: in.Path}
	switch {
	case in.Old == "":
		return nil, out, invalid("old", "the text to replace is empty", "write a whole file with write_file")
	case in.Old == in.New:
		return nil, out, invalid("new", "the two texts are equal", "")
	}
	if err := errors.Join(checkSize("old", len(in.Old), maxContent, ""), checkSize("new", len(in.New), maxContent, "")); err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	data, info, err := whole(ctx, b.FS(), in.Path)
	if err != nil {
		return nil, out, err
	}
	switch n := bytes.Count(data, []byte(in.Old)); {
	case n == 0:
		return nil, out, invalid("old", "the text does not occur in "+sandbar.Quote(in.Path, 200), "read the file and copy the text exactly, with its spaces")
	case n > 1 && !in.All:
		return nil, out, invalid("old", fmt.Sprintf("the text occurs %d times in %s", n, sandbar.Quote(in.Path, 200)), "add lines around it, or set all")
	default:
		out.Replaced = n
	}
	if grown := len(data) + out.Replaced*(len(in.New)-len(in.Old)); grown > maxContent {
		return nil, out, sandbar.Errorf(sandbar.TooLarge, "the file would have %d bytes; at most %d are allowed", grown, maxContent)
	}
	data = bytes.ReplaceAll(data, []byte(in.Old), []byte(in.New))
	out.Size = len(data)
	if err := put(ctx, b.FS(), in.Path, data, sandbar.CreateOptions{Mode: info.Mode.Perm()}); err != nil {
		return nil, out, err
	}
	return text("replaced %s in %s", count(out.Replaced, "occurrence"), in.Path), out, nil
}

type listArgs struct {
	Path      string `json:"path,omitempty"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"also list the directories below"`
	After     string `json:"after,omitempty" jsonschema:"list the entries after this name; not with recursive"`
	Limit     int    `json:"limit,omitempty" jsonschema:"number of entries; default 200, at most 1000"`
	Sandbox   string `json:"sandbox,omitempty"`
}

type listResult struct {
	Sandbox string  `json:"sandbox"`
	Path    string  `json:"path"`
	Entries []entry `json:"entries"`
	More    bool    `json:"more" jsonschema:"there are further entries"`
}

type entry struct {
	Path     string `json:"path" jsonschema:"path from the listed directory"`
	Type     string `json:"type" jsonschema:"file, dir, symlink or other"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode" jsonschema:"permission bits in octal"`
	Modified string `json:"modified"`
	Target   string `json:"target,omitempty" jsonschema:"target of a symbolic link"`
}

func entryOf(name string, i sandbar.FileInfo) entry {
	e := entry{Path: name, Size: i.Size, Mode: strconv.FormatUint(uint64(i.Mode.Perm()), 8), Modified: i.ModTime.UTC().Format(time.RFC3339), Target: i.Target, Type: "other"}
	switch {
	case i.Mode.IsRegular():
		e.Type = "file"
	case i.Mode.IsDir():
		e.Type = "dir"
	case i.Mode&fs.ModeSymlink != 0:
		e.Type = "symlink"
	}
	return e
}

func (s *Server) listFiles(ctx context.Context, c call, in listArgs) (*sdk.CallToolResult, listResult, error) {
	out := listResult{Path: in.Path, Entries: []entry{}}
	if out.Path == "" {
		out.Path = sandbar.DefaultDir
	}
	limit, err := bound("limit", in.Limit, defaultEntries, maxEntries)
	if err == nil && in.Recursive && in.After != "" {
		err = invalid("after", "after cannot be combined with recursive", "list one directory, or narrow the path")
	}
	if err == nil {
		err = errors.Join(checkPath(out.Path), checkPath(in.After))
	}
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	if in.Recursive {
		out.More, err = walk(ctx, b.FS(), out.Path, func(name string, i sandbar.FileInfo) (bool, error) {
			if len(out.Entries) == limit {
				return false, nil
			}
			out.Entries = append(out.Entries, entryOf(name, i))
			return true, nil
		})
	} else {
		var all []sandbar.FileInfo
		all, err = b.FS().ReadDir(ctx, out.Path, in.After, limit+1)
		out.More = len(all) > limit
		for _, i := range all[:min(limit, len(all))] {
			out.Entries = append(out.Entries, entryOf(i.Name, i))
		}
	}
	if err != nil {
		return nil, out, err
	}
	var t strings.Builder
	for _, e := range out.Entries {
		fmt.Fprintf(&t, "%-7s %10d %s %s", e.Type, e.Size, e.Modified, e.Path)
		if e.Target != "" {
			t.WriteString(" -> " + e.Target)
		}
		t.WriteByte('\n')
	}
	switch {
	case out.More && in.Recursive:
		t.WriteString("[more entries are left out; narrow the path]\n")
	case out.More:
		fmt.Fprintf(&t, "[more entries; after %q continues]\n", out.Entries[len(out.Entries)-1].Path)
	case len(out.Entries) == 0:
		t.WriteString("[no entries]\n")
	}
	return text("%s", t.String()), out, nil
}

// walk visits everything below a directory, without following symbolic links, until visit returns
// false or maxWalk entries were visited. cut reports that it has not visited all. Directories that
// cannot be read are left out, but for the first.
func walk(ctx context.Context, files sandbar.FS, root string, visit func(name string, i sandbar.FileInfo) (bool, error)) (cut bool, err error) {
	visited := 0
	var dir func(below string) (bool, error)
	dir = func(below string) (more bool, err error) {
		for after := ""; ; {
			page, err := files.ReadDir(ctx, path.Join(root, below), after, maxEntries)
			if err != nil {
				if below != "" && ctx.Err() == nil && sandbar.CodeOf(err) != sandbar.Gone {
					return true, nil
				}
				return false, err
			}
			for _, i := range page {
				name := path.Join(below, i.Name)
				if visited++; visited > maxWalk {
					return false, nil
				}
				if more, err := visit(name, i); err != nil || !more {
					return false, err
				}
				if i.Mode.IsDir() {
					if more, err := dir(name); err != nil || !more {
						return false, err
					}
				}
				after = i.Name
			}
			if len(page) < maxEntries {
				return true, nil
			}
		}
	}
	more, err := dir("")
	return !more, err
}

type searchArgs struct {
	Pattern    string `json:"pattern" jsonschema:"regular expression (RE2 syntax)"`
	Path       string `json:"path,omitempty"`
	Glob       string `json:"glob,omitempty" jsonschema:"pattern of file names, such as *.py"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Limit      int    `json:"limit,omitempty" jsonschema:"number of matches; default and most 200"`
	Sandbox    string `json:"sandbox,omitempty"`
}

type searchResult struct {
	Sandbox string  `json:"sandbox"`
	Path    string  `json:"path"`
	Matches []match `json:"matches"`
	More    bool    `json:"more" jsonschema:"not all files were searched"`
}

type match struct {
	Path string `json:"path" jsonschema:"path from the searched directory"`
	Line int    `json:"line" jsonschema:"number of the line, from 1"`
	Text string `json:"text" jsonschema:"the line; may be cut"`
}

func (s *Server) searchFiles(ctx context.Context, c call, in searchArgs) (*sdk.CallToolResult, searchResult, error) {
	out := searchResult{Path: in.Path, Matches: []match{}}
	if out.Path == "" {
		out.Path = sandbar.DefaultDir
	}
	limit, err := bound("limit", in.Limit, maxMatches, maxMatches)
	if err == nil {
		err = errors.Join(checkPath(out.Path), checkSize("pattern", len(in.Pattern), maxPattern, ""), checkSize("glob", len(in.Glob), maxPattern, ""))
	}
	if err != nil {
		return nil, out, err
	}
	pattern := in.Pattern
	if in.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	expression, err := regexp.Compile(pattern)
	if err != nil || in.Pattern == "" {
		return nil, out, invalid("pattern", "pattern "+sandbar.Quote(in.Pattern, 100)+" is no regular expression", "use RE2 syntax")
	}
	if _, err := path.Match(in.Glob, ""); err != nil {
		return nil, out, invalid("glob", "glob "+sandbar.Quote(in.Glob, 100)+" is malformed", "use *, ? and [a-z]")
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	files := b.FS()
	out.More, err = walk(ctx, files, out.Path, func(name string, i sandbar.FileInfo) (bool, error) {
		if !i.Mode.IsRegular() || i.Size > maxContent {
			return true, nil
		}
		if ok, _ := path.Match(in.Glob, i.Name); in.Glob != "" && !ok {
			return true, nil
		}
		data, _, err := part(ctx, files, path.Join(out.Path, name), 0, maxContent)
		switch {
		case ctx.Err() != nil || sandbar.CodeOf(err) == sandbar.Gone:
			return false, err
		case err != nil || bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0:
			return true, nil
		}
		n := 0
		for line := range bytes.Lines(data) {
			n++
			line = bytes.TrimRight(line, "\r\n")
			if !expression.Match(line) {
				continue
			}
			if len(out.Matches) == limit {
				return false, nil
			}
			t := truncate.Text(truncate.TrimPartialRune(line[:min(len(line), maxLine)]))
			if len(line) > maxLine {
				t += "…"
			}
			out.Matches = append(out.Matches, match{name, n, t})
		}
		return true, nil
	})
	if err != nil {
		return nil, out, err
	}
	var t strings.Builder
	for _, m := range out.Matches {
		fmt.Fprintf(&t, "%s:%d:%s\n", m.Path, m.Line, m.Text)
	}
	if len(out.Matches) == 0 {
		t.WriteString("[no matches]\n")
	}
	if out.More {
		t.WriteString("[not all files were searched; narrow the path, the glob or the pattern]\n")
	}
	return text("%s", t.String()), out, nil
}

type uploadArgs struct {
	Path    string `json:"path"`
	Data    string `json:"data" jsonschema:"the bytes in base64"`
	Append  bool   `json:"append,omitempty" jsonschema:"append to an existing file"`
	Mode    string `json:"mode,omitempty" jsonschema:"permission bits in octal; default 644"`
	Sandbox string `json:"sandbox,omitempty"`
}

func (s *Server) upload(ctx context.Context, c call, in uploadArgs) (*sdk.CallToolResult, writeResult, error) {
	data, err := base64.StdEncoding.DecodeString(in.Data)
	if err != nil {
		return nil, writeResult{}, invalid("data", "data is not base64: "+err.Error(), "encode it with the standard alphabet and padding")
	}
	if err := checkSize("data", len(data), maxUpload, "upload it in parts with append"); err != nil {
		return nil, writeResult{}, err
	}
	return s.write(ctx, c, in.Sandbox, in.Path, data, in.Mode, in.Append)
}

type downloadArgs struct {
	Path    string `json:"path"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"byte at which to begin"`
	Limit   int    `json:"limit,omitempty" jsonschema:"bytes to return; default 1048576, at most 4194304"`
	Sandbox string `json:"sandbox,omitempty"`
}

type downloadResult struct {
	Sandbox    string `json:"sandbox"`
	Path       string `json:"path"`
	Size       int64  `json:"size" jsonschema:"size of the file in bytes"`
	Offset     int64  `json:"offset"`
	Bytes      int    `json:"bytes" jsonschema:"bytes of the embedded resource"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"offset of the rest; absent at the end of the file"`
	MIMEType   string `json:"mime_type"`
}

func (s *Server) download(ctx context.Context, c call, in downloadArgs) (*sdk.CallToolResult, downloadResult, error) {
	out := downloadResult{Path: in.Path, Offset: in.Offset}
	limit, err := bound("limit", in.Limit, defaultPart, maxDownload)
	if err != nil {
		return nil, out, err
	}
	b, err := c.session.use(ctx, in.Sandbox)
	if err != nil {
		return nil, out, err
	}
	out.Sandbox = string(b.ID())
	data, info, err := part(ctx, b.FS(), in.Path, in.Offset, limit)
	if err != nil {
		return nil, out, err
	}
	out.Size, out.Bytes, out.MIMEType = info.Size, len(data), http.DetectContentType(data)
	end := in.Offset + int64(len(data))
	note := fmt.Sprintf("bytes %d to %d of %d", in.Offset, end, info.Size)
	if end < info.Size {
		out.NextOffset = end
		note += fmt.Sprintf("; offset %d continues", end)
	}
	absolute := in.Path
	if !path.IsAbs(absolute) {
		absolute = path.Join(sandbar.DefaultDir, absolute)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{
		&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uriOf(b.ID(), absolute), MIMEType: out.MIMEType, Blob: data}},
		&sdk.TextContent{Text: note},
	}}, out, nil
}
