package function

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/search"
)

// renamer is an FS that records renames.
type renamer struct {
	sandbar.FS
	err   error // of RenameNew
	calls []string
}

func (r *renamer) Rename(context.Context, string, string) error {
	r.calls = append(r.calls, "Rename")
	return nil
}

func (r *renamer) RenameNew(context.Context, string, string) error {
	r.calls = append(r.calls, "RenameNew")
	return r.err
}

func TestRename(t *testing.T) {
	exists := sandbar.Errorf(sandbar.Exists, "rename: %w", syscall.EEXIST)
	for _, x := range []struct {
		name      string
		err       error
		overwrite bool
		calls     string
		want      error
	}{
		{"new", nil, false, "RenameNew", nil},
		{"somebody was faster", exists, false, "RenameNew", exists},
		{"not in one step", sandbar.Errorf(sandbar.Unsupported, "no"), false, "RenameNew Rename", nil},
		{"overwriting", exists, true, "Rename", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := &renamer{err: x.err}
			err := rename(t.Context(), r, "/a", "/b", x.overwrite)
			if calls := strings.Join(r.calls, " "); calls != x.calls || !errors.Is(err, x.want) {
				t.Errorf("%s, %v; want %s, %v", calls, err, x.calls, x.want)
			}
		})
	}
	// Without the ability.
	r := &renamer{}
	if err := rename(t.Context(), struct{ sandbar.FS }{r}, "/a", "/b", false); err != nil || len(r.calls) != 1 {
		t.Errorf("%v, %v", r.calls, err)
	}
}

// bookshelf is a directory of files, by name. ReadFiles returns at most three.
type bookshelf struct {
	sandbar.FS
	names  []string
	texts  map[string]string
	many   bool  // ReadFiles works
	broken error // of ReadFiles
	failed map[string]error
	opened int
}

func (b *bookshelf) ReadDir(context.Context, string, string, int) (all []sandbar.FileInfo, _ error) {
	for _, n := range b.names {
		all = append(all, sandbar.FileInfo{Name: n, Size: int64(len(b.texts[n]))})
	}
	return all, nil
}

func (b *bookshelf) ReadFiles(_ context.Context, paths []string, most int) (all []sandbar.FileContent, _ error) {
	if !b.many {
		return nil, sandbar.Errorf(sandbar.Unsupported, "one by one")
	}
	for _, p := range paths[:min(3, len(paths))] {
		text := b.texts[baseName(p)]
		c := sandbar.FileContent{Data: []byte(text[:min(len(text), most)]), Complete: len(text) <= most}
		if err := b.failed[baseName(p)]; err != nil {
			c = sandbar.FileContent{Err: err}
		}
		all = append(all, c)
	}
	return all, b.broken
}

func (b *bookshelf) Open(_ context.Context, path string) (sandbar.File, error) {
	b.opened++
	if err := b.failed[baseName(path)]; err != nil {
		return nil, err
	}
	return openBook{strings.NewReader(b.texts[baseName(path)])}, nil
}

type openBook struct{ *strings.Reader }

func (openBook) Close() error           { return nil }
func (openBook) Info() sandbar.FileInfo { return sandbar.FileInfo{} }

var _ io.ReadSeekCloser = openBook{}

func TestGrepTogetherOrOneByOne(t *testing.T) {
	shelf := func() *bookshelf {
		b := &bookshelf{names: []string{"a", "b", "c", "d", "e", "f", "g", "h"}, texts: map[string]string{}, many: true, failed: map[string]error{}}
		for _, n := range b.names {
			b.texts[n] = "first\nneedle " + n + "\n"
		}
		return b
	}
	notFound := &sandbar.Error{Code: sandbar.NotFound, Err: fs.ErrNotExist}
	denied := sandbar.Errorf(sandbar.Denied, "no: %w", syscall.EACCES)
	for _, x := range []struct {
		name   string
		change func(*bookshelf)
		most   uint64
		found  string // the files with matches
		opened int
		code   Code
	}{
		{"together", func(*bookshelf) {}, 0, "abcdefgh", 0, ""},
		{"one by one", func(b *bookshelf) { b.many = false }, 0, "abcdefgh", 8, ""},
		{"a large one among them", func(b *bookshelf) { b.texts["c"] += strings.Repeat("x", batchFile) }, 0, "abcdefgh", 1, ""},
		{"binary", func(b *bookshelf) { b.texts["b"] += "\x00" }, 0, "acdefgh", 0, ""},
		{"removed", func(b *bookshelf) { b.failed["d"] = notFound }, 0, "abcefgh", 0, ""},
		{"a link by now", func(b *bookshelf) { b.failed["d"] = sandbar.Errorf(sandbar.Conflict, "no") }, 0, "abcefgh", 0, ""},
		{"denied", func(b *bookshelf) { b.failed["d"] = denied }, 0, "", 0, S215},
		{"denied after the last that is wanted", func(b *bookshelf) { b.failed["d"] = denied }, 3, "abc", 0, ""},
		{"denied, one by one", func(b *bookshelf) { b.failed["d"], b.many = denied, false }, 0, "", 4, S215},
		{"gone", func(b *bookshelf) { b.broken = sandbar.Errorf(sandbar.Gone, "gone") }, 0, "", 0, S300},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := shelf()
			x.change(b)
			g, err := search.NewGrep("needle", false, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := grep(t.Context(), b, g, searchRoot{asked: "/s", path: "/s", dir: true}, x.most)
			if x.code != "" {
				if !isFailure(err, x.code) || b.opened != x.opened {
					t.Fatalf("%v, %d opened; want %s, %d", err, b.opened, x.code, x.opened)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []search.Match
			for _, n := range strings.Split(x.found, "") {
				want = append(want, search.Match{Path: "/s/" + n, Line: 2, Content: "needle " + n})
			}
			m := got.(map[string]any)
			if d := cmp.Diff(want, m["matches"]); d != "" || m["truncated"] != (x.most > 0) || b.opened != x.opened {
				t.Errorf("truncated %v, %d opened; want %d (-want +got):\n%s", m["truncated"], b.opened, x.opened, d)
			}
		})
	}
}
