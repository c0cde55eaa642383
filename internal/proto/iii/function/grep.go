package function

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/proto/iii/search"
)

// maxFound bounds the text of all matches of one call, in bytes, where the
// caller set no limits.
const maxFound = 32 << 20

// grepRequest is what sandbox::fs::grep asks for.
type grepRequest struct {
	raw                  request
	id, path, pattern    string
	recursive, fold      bool
	include, exclude     []string
	maxMatches, maxBytes uint64
}

// fsGrep is sandbox::fs::grep.
func (f *Functions) fsGrep(ctx context.Context, data json.RawMessage) (any, error) {
	req := grepRequest{recursive: true, maxMatches: 10_000, maxBytes: 4096}
	var err error
	req.raw, err = decode(data, "GrepRequest", must(text("sandbox_id", &req.id)), must(text("path", &req.path)),
		must(text("pattern", &req.pattern)), truth("recursive", &req.recursive), truth("ignore_case", &req.fold),
		texts("include_glob", &req.include), texts("exclude_glob", &req.exclude),
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

// searchRoot is what a search begins with: a tree, or one file.
type searchRoot struct {
	asked  string // as the caller wrote it
	path   string // links followed
	dir    bool
	filter search.Filter
}

// rootOf looks at the root of a search. A link is followed.
func rootOf(ctx context.Context, files sandbar.FS, op, path string, recursive bool, include, exclude []string, raw request) (searchRoot, error) {
	at, i, err := follow(ctx, files, path)
	if err != nil {
		return searchRoot{}, err
	}
	if i.Mode.IsDir() && !recursive {
		return searchRoot{}, fail(S210, "%s: %s is a directory and recursive is false", op, clip(path)).
			with(raw.fixed(map[string]any{"recursive": true}), "the same call, searching below the directory")
	}
	return searchRoot{path, at, i.Mode.IsDir(), search.NewFilter(include, exclude)}, nil
}

// each begins every file of the root that is chosen, in order.
func (r searchRoot) each(ctx context.Context, files sandbar.FS, begin func(found) error) error {
	if !r.dir {
		if !r.filter.Chooses(baseName(r.asked)) {
			return nil
		}
		return begin(found{path: r.path, rel: ""})
	}
	w := walker{files: files, root: r.path}
	return w.regular(ctx, r.filter.Chooses, begin)
}

// shown is the path of a file as the caller sees it: the root as it was asked
// for, joined by the path below it.
func (r searchRoot) shown(f found) string {
	if f.rel == "" {
		return r.asked
	}
	return lossy([]byte(strings.TrimRight(r.asked, "/") + "/" + f.rel))
}

// fileMatches is what was found in one file.
type fileMatches struct {
	matches []search.Match
	err     error
}

// grep searches files, several at once, and returns the matches in the order
// of the files.
func grep(ctx context.Context, files sandbar.FS, g *search.Grep, root searchRoot, most uint64) (any, error) {
	matches, truncated, size := []search.Match{}, false, 0
	var failed error
	err := ordered(ctx, func(ctx context.Context, begin func(found) error) error { return root.each(ctx, files, begin) },
		func(ctx context.Context, file found) fileMatches {
			return grepFile(ctx, files, g, file, root.shown(file), most)
		},
		func(_ found, r fileMatches) bool {
			for _, m := range r.matches {
				matches = append(matches, m)
				size += len(m.Content) + len(m.Path)
				if truncated = most > 0 && uint64(len(matches)) >= most || size > maxFound; truncated {
					return false
				}
			}
			failed = r.err
			return failed == nil
		})
	if failed == nil {
		failed = err
	}
	if failed != nil {
		return nil, searchFailure(failed)
	}
	return map[string]any{"matches": matches, "truncated": truncated}, nil
}

// grepFile searches one file. One that has just been removed, or has become
// something else, holds nothing.
func grepFile(ctx context.Context, files sandbar.FS, g *search.Grep, file found, path string, most uint64) (r fileMatches) {
	f, err := files.Open(ctx, file.path)
	if err != nil {
		if file.rel == "" || !errors.Is(err, fs.ErrNotExist) && sandbar.CodeOf(err) != sandbar.Conflict {
			r.err = fileFailure(err, path, "path")
		}
		return r
	}
	defer f.Close()
	size := 0
	err = g.File(contextReader{ctx, f}, func(line uint64, content string) bool {
		r.matches = append(r.matches, search.Match{Path: path, Line: line, Content: content})
		size += len(content)
		return (most == 0 || uint64(len(r.matches)) < most) && size <= maxFound
	})
	if err != nil {
		r.err = fileFailure(err, path, "path")
	}
	return r
}

// searchFailure makes a failure of what ended a search.
func searchFailure(err error) error {
	var e *failure
	if errors.As(err, &e) {
		return e
	}
	return fail(S216, "shell client error: %s", err)
}
