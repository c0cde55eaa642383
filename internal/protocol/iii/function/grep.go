package function

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/search"
)

// maxFound bounds the text of all matches of one call, in bytes, if the caller sets no limits.
const maxFound = 32 << 20

// grepRequest has the parameters of sandbox::fs::grep.
type grepRequest struct {
	raw                  request
	id, path, pattern    string
	recursive, fold      bool
	include, exclude     []string
	maxMatches, maxBytes uint64
}

// fsGrep implements sandbox::fs::grep.
func (f *Functions) fsGrep(ctx context.Context, data json.RawMessage) (any, error) {
	req := grepRequest{recursive: true, maxMatches: 10_000, maxBytes: 4096}
	var err error
	req.raw, err = decode(data, "GrepRequest", must(text("sandbox_id", &req.id)), must(text("path", &req.path)),
		must(text("pattern", &req.pattern)), boolean("recursive", &req.recursive), boolean("ignore_case", &req.fold),
		stringList("include_glob", &req.include), stringList("exclude_glob", &req.exclude),
		number("max_matches", &req.maxMatches), number("max_line_bytes", &req.maxBytes))
	if err != nil {
		return nil, err
	}
	files, err := f.filesOf(req.id)
	if err != nil {
		return nil, err
	}
	g, err := search.NewGrep(req.pattern, req.fold, req.maxBytes)
	if err != nil {
		return nil, badPattern(err)
	}
	root, err := rootOf(ctx, files, "grep", req.path, req.recursive, req.include, req.exclude, req.raw)
	if err != nil {
		return nil, err
	}
	return grep(ctx, files, g, root, req.maxMatches)
}

func badPattern(err error) error { return fail(S217, "bad regex: %s", clip(err.Error())) }

// searchRoot is the start of a search: a tree or one file.
type searchRoot struct {
	asked  string // as in the request
	path   string // with links resolved
	dir    bool
	filter search.Filter
}

// rootOf examines the root of a search. It follows a link.
func rootOf(ctx context.Context, files sandbar.FS, op, path string, recursive bool, include, exclude []string, raw request) (searchRoot, error) {
	at, i, err := follow(ctx, files, path)
	if err != nil {
		return searchRoot{}, err
	}
	if i.Mode.IsDir() && !recursive {
		return searchRoot{}, fail(S210, "%s: %s is a directory and recursive is false", op, clip(path)).
			with(raw.fixed(map[string]any{"recursive": true}), "the same call, searching below the directory")
	}
	filter, err := search.NewFilter(include, exclude)
	if err != nil {
		return searchRoot{}, fail(S210, "%s: %s", op, err)
	}
	return searchRoot{path, at, i.Mode.IsDir(), filter}, nil
}

// each calls begin for every selected file of the root, in order.
func (r searchRoot) each(ctx context.Context, files sandbar.FS, begin func(found) error) error {
	if !r.dir {
		if !r.filter.Selects(baseName(r.asked)) {
			return nil
		}
		return begin(found{path: r.path, rel: ""})
	}
	w := walker{files: files, root: r.path, prunes: r.filter.Prunes}
	left := int64(maxSearched)
	return w.regular(ctx, r.filter.Selects, func(f found) error {
		// A larger file is refused where it is opened, with its name.
		if f.info.Size <= maxSearched {
			if left -= f.info.Size; left < 0 {
				return fail(S216, "%s: %s", clip(r.asked), errTooMuch)
			}
		}
		return begin(f)
	})
}

// shown returns the path of a file for the caller: the requested root, joined with the path below
// it.
func (r searchRoot) shown(f found) string {
	if f.rel == "" {
		return r.asked
	}
	return lossy([]byte(strings.TrimRight(r.asked, "/") + "/" + f.rel))
}

// Bounds of a batch of files that are read together.
const (
	batchFiles = sandbar.MaxReadFiles
	batchBytes = 192 << 10
	// batchFile is the largest file in a batch with others, in bytes.
	batchFile = 32 << 10
)

// batches calls begin for batches of the root's files, in order. A large file is a batch of its
// own.
func (r searchRoot) batches(ctx context.Context, files sandbar.FS, begin func([]found) error) error {
	var batch []found
	var size int64
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		full := batch
		batch, size = nil, 0
		return begin(full)
	}
	err := r.each(ctx, files, func(f found) error {
		if len(batch) == batchFiles || f.info.Size > batchBytes-size || f.info.Size > batchFile {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, f), size+f.info.Size
		if f.info.Size > batchFile {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// matches has the matches in consecutive files, and the error that ended their search, if any.
type matches struct {
	all  []search.Match
	size int // bytes of text
	err  error
}

// room reports whether more matches are wanted: most is the bound, 0 for none.
func (m *matches) room(most uint64) bool {
	return (most == 0 || uint64(len(m.all)) < most) && m.size <= maxFound
}

// grepper searches the files of one root.
type grepper struct {
	*search.Grep
	files sandbar.FS
	root  searchRoot
	most  uint64
}

// grep searches files, several at once, and returns the matches in file order.
func grep(ctx context.Context, files sandbar.FS, g *search.Grep, root searchRoot, most uint64) (any, error) {
	r := grepper{g, files, root, most}
	total := matches{all: []search.Match{}}
	truncated := false
	err := ordered(ctx, func(ctx context.Context, begin func([]found) error) error { return root.batches(ctx, files, begin) },
		r.batch,
		func(some matches) bool {
			for _, m := range some.all {
				total.all = append(total.all, m)
				total.size += len(m.Content) + len(m.Path)
				if truncated = !total.room(most); truncated {
					return false
				}
			}
			total.err = some.err
			return total.err == nil
		})
	if total.err != nil {
		err = total.err
	}
	if err != nil {
		return nil, searchFailure(err)
	}
	return map[string]any{"matches": total.all, "truncated": truncated}, nil
}

// batch searches files until there is no room for more matches, or one fails.
func (g grepper) batch(ctx context.Context, batch []found) (m matches) {
	reader, ok := g.files.(sandbar.BatchReader)
	for ok && len(batch) > 1 && m.err == nil && m.room(g.most) {
		contents, err := reader.ReadFiles(ctx, pathsOf(batch), batchFile)
		if ok = sandbar.CodeOf(err) != sandbar.Unsupported; err != nil {
			if ok {
				m.err = fileFailure(err, g.root.asked, "path")
			}
			break
		}
		for i, c := range contents {
			if m.err == nil && m.room(g.most) {
				g.content(ctx, batch[i], c, &m)
			}
		}
		batch = batch[len(contents):]
	}
	for _, f := range batch {
		if m.err == nil && m.room(g.most) {
			g.file(ctx, f, &m)
		}
	}
	return m
}

func pathsOf(files []found) []string {
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.path
	}
	return paths
}

// content searches a file, given its first bytes.
func (g grepper) content(ctx context.Context, f found, c sandbar.FileContent, m *matches) {
	switch {
	case c.Err != nil:
		m.err = g.failure(c.Err, f)
	case c.Complete:
		g.Bytes(c.Data, g.add(f, m))
	default: // it has grown
		g.file(ctx, f, m)
	}
}

// file opens and searches one file.
func (g grepper) file(ctx context.Context, file found, m *matches) {
	f, err := g.files.Open(ctx, file.path)
	if err != nil {
		m.err = g.failure(err, file)
		return
	}
	defer f.Close()
	if err := g.File(contextReader{ctx, f}, g.add(file, m)); err != nil {
		m.err = fileFailure(err, g.root.shown(file), "path")
	}
}

// add returns a function that adds a file's matches to m.
func (g grepper) add(f found, m *matches) func(line uint64, content string) bool {
	return func(line uint64, content string) bool {
		path := g.root.shown(f)
		m.all = append(m.all, search.Match{Path: path, Line: line, Content: content})
		m.size += len(content) + len(path)
		return m.room(g.most)
	}
}

// failure returns the error of a file. A file below the root that was just removed or replaced
// counts as empty.
func (g grepper) failure(err error, f found) error {
	if f.rel != "" && (errors.Is(err, fs.ErrNotExist) || sandbar.CodeOf(err) == sandbar.Conflict) {
		return nil
	}
	return fileFailure(err, g.root.shown(f), "path")
}

// searchFailure converts the error that ended a search.
func searchFailure(err error) error {
	var e *failure
	if errors.As(err, &e) {
		return e
	}
	return fail(S216, "shell client error: %s", err)
}
