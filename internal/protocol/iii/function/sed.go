package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/search"
)

// maxEdited is the largest file that is edited, in bytes.
const maxEdited = 64 << 20

// sedRequest has the parameters of sandbox::fs::sed.
type sedRequest struct {
	raw                    request
	id                     string
	files                  []string
	path                   *string
	recursive              bool
	include, exclude       []string
	pattern, replacement   string
	regex, firstOnly, fold bool
}

// sedResult is the result for one file.
type sedResult struct {
	Path         string `json:"path"`
	Replacements uint64 `json:"replacements"`
	Success      bool   `json:"success"`
	Error        string `json:"error,omitempty"`
}

// fsSed implements sandbox::fs::sed.
func (f *Functions) fsSed(ctx context.Context, data json.RawMessage) (any, error) {
	req := sedRequest{recursive: true, regex: true}
	var err error
	req.raw, err = decode(data, "SedRequest", must(text("sandbox_id", &req.id)), stringList("files", &req.files),
		optional(text, "path", &req.path), boolean("recursive", &req.recursive), stringList("include_glob", &req.include),
		stringList("exclude_glob", &req.exclude), must(text("pattern", &req.pattern)), must(text("replacement", &req.replacement)),
		boolean("regex", &req.regex), boolean("first_only", &req.firstOnly), boolean("ignore_case", &req.fold))
	if err != nil {
		return nil, err
	}
	switch {
	case req.path != nil && len(req.files) > 0:
		return nil, fail(S210, "sed: provide exactly one of files or path, not both")
	case req.path == nil && len(req.files) == 0:
		return nil, fail(S210, "sed: provide exactly one of files or path; neither was given")
	}
	files, err := f.filesOf(req.id)
	if err != nil {
		return nil, err
	}
	if !req.regex && req.pattern == "" {
		return nil, fail(S210, "sed: the pattern is empty, and it is not a regular expression")
	}
	s, err := search.NewSed(req.pattern, req.replacement, req.regex, req.firstOnly, req.fold)
	if err != nil {
		return nil, badPattern(err)
	}
	if req.path == nil {
		return editFiles(ctx, files, s, req.files)
	}
	root, err := rootOf(ctx, files, "sed", *req.path, req.recursive, req.include, req.exclude, req.raw)
	if err != nil {
		return nil, err
	}
	return editTree(ctx, files, s, root)
}

// sedResults has the results of all files.
type sedResults struct {
	Results []sedResult `json:"results"`
	Total   uint64      `json:"total_replacements"`
}

func (all *sedResults) add(r sedResult) {
	all.Results = append(all.Results, r)
	all.Total += r.Replacements
}

// editFiles edits files one after the other, because the same file may be named twice.
func editFiles(ctx context.Context, files sandbar.FS, s *search.Sed, paths []string) (any, error) {
	all := sedResults{Results: []sedResult{}}
	for _, path := range paths {
		all.add(editOne(ctx, files, s, path, path))
	}
	return all, nil
}

// editTree edits the files below a root, several at once, and returns the results in file order.
func editTree(ctx context.Context, files sandbar.FS, s *search.Sed, root searchRoot) (any, error) {
	all := sedResults{Results: []sedResult{}}
	err := ordered(ctx, func(ctx context.Context, begin func(found) error) error { return root.each(ctx, files, begin) },
		func(ctx context.Context, file found) sedResult {
			return editOne(ctx, files, s, file.path, root.shown(file))
		},
		func(r sedResult) bool { all.add(r); return true })
	if err != nil {
		return nil, searchFailure(err)
	}
	return all, nil
}

// editOne edits the file at path, which the caller knows as shown.
func editOne(ctx context.Context, files sandbar.FS, s *search.Sed, path, shown string) sedResult {
	n, err := edit(ctx, files, s, path)
	if err != nil {
		return sedResult{Path: shown, Error: reasonOf(err)}
	}
	return sedResult{Path: shown, Replacements: n, Success: true}
}

// reasonOf returns why a file could not be edited.
func reasonOf(err error) string {
	if s := osError(err); s != "" {
		return s
	}
	var e *failure
	if errors.As(err, &e) {
		return e.message
	}
	return err.Error()
}

// reasons not to edit a file
var (
	errNotText  = errors.New("stream did not contain valid UTF-8")
	errTooLarge = fmt.Errorf("the file is larger than %d MiB, which is all that is edited", maxEdited>>20)
)

// edit replaces text in one file atomically. A file without a match is left unchanged. For a link
// it edits the target.
func edit(ctx context.Context, files sandbar.FS, s *search.Sed, path string) (uint64, error) {
	at, info, err := follow(ctx, files, path)
	if err != nil {
		return 0, err
	}
	if info.Size > maxEdited {
		return 0, errTooLarge
	}
	f, err := files.Open(ctx, at)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	old, err := io.ReadAll(contextReader{ctx, io.LimitReader(f, maxEdited+1)})
	switch {
	case err != nil:
		return 0, err
	case len(old) > maxEdited:
		return 0, errTooLarge
	case !utf8.Valid(old):
		return 0, errNotText
	}
	edited, n := s.Apply(old)
	if n == 0 {
		return 0, nil
	}
	w, err := files.Create(ctx, at, sandbar.CreateOptions{Mode: unset(info.Mode) | fileMode(0)})
	if err != nil {
		return 0, err
	}
	if err := writeAll(w, path, edited); err != nil {
		return 0, err
	}
	return n, nil
}
