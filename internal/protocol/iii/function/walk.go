package function

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
)

// Bounds of a walk.
const (
	// ahead is the number of directories listed at once, and of files or batches that a search
	// reads at once. A sandbox handles requests one after the other, so this hides the latency.
	ahead = 8
	// maxWalked is the most files and directories that one call visits.
	maxWalked = 2_000_000
	// maxWalkDepth is the deepest nesting that is walked.
	maxWalkDepth = 1000
	// maxSearched bounds the size of all files that one call searches, in bytes. Holes count:
	// thousands of sparse files use no disk of a sandbox.
	maxSearched = 16 << 30
)

var errTooMuch = errors.New("the tree is too large for one call: narrow the path")

// found is a file or directory of a walk.
type found struct {
	path string // root joined with rel
	rel  string // relative to the root
	info sandbar.FileInfo
}

// walker walks a tree in the order of names. It visits links without following them. It skips
// directories that cannot be listed, and /proc, /sys and /dev unless one of them is the root.
type walker struct {
	files sandbar.FS
	root  string // an absolute directory
	// prunes reports whether a directory below the root is skipped. Nil: none.
	prunes func(rel string) bool

	walked int
	lists  chan struct{} // a token for each listing in progress
	tasks  sync.WaitGroup
}

// listing is a directory listing in progress.
type listing struct {
	done    chan struct{}
	entries []sandbar.FileInfo
}

// walk calls visit for everything below the root, until it fails.
func (w *walker) walk(ctx context.Context, visit func(found) error) error {
	ctx, cancel := context.WithCancel(ctx)
	w.lists = make(chan struct{}, ahead)
	defer w.tasks.Wait()
	defer cancel()
	return w.below(ctx, strings.TrimRight(w.root, "/"), "", w.list(ctx, w.root), visit, 0)
}

// list starts to list a directory.
func (w *walker) list(ctx context.Context, dir string) *listing {
	l := &listing{done: make(chan struct{})}
	w.tasks.Go(func() {
		defer close(l.done)
		select {
		case w.lists <- struct{}{}:
			defer func() { <-w.lists }()
		case <-ctx.Done():
			return
		}
		// a directory that cannot be listed counts as empty
		l.entries, _ = w.files.ReadDir(ctx, dir, "", maxWalked)
	})
	return l
}

// below visits the entries of a directory whose listing is in progress.
func (w *walker) below(ctx context.Context, dir, rel string, l *listing, visit func(found) error, depth int) error {
	<-l.done
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.walked += len(l.entries); w.walked > maxWalked || depth > maxWalkDepth {
		return fail(S216, "%s: %s", clip(w.root), errTooMuch)
	}
	next := w.prefetch(ctx, dir, rel, l.entries)
	for _, i := range l.entries {
		file := found{path: dir + "/" + i.Name, rel: rel + i.Name, info: i}
		if err := visit(file); err != nil {
			return err
		}
		if !w.enters(dir, rel, i) {
			continue
		}
		if err := w.below(ctx, file.path, file.rel+"/", next(), visit, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// prefetch returns a function that returns the listings of dir's subdirectories one after the
// other, while the next few are in progress.
func (w *walker) prefetch(ctx context.Context, dir, rel string, entries []sandbar.FileInfo) func() *listing {
	var dirs []string
	for _, i := range entries {
		if w.enters(dir, rel, i) {
			dirs = append(dirs, i.Name)
		}
	}
	var begun []*listing // for dirs[0], …
	return func() *listing {
		for len(begun) < min(ahead, len(dirs)) {
			begun = append(begun, w.list(ctx, dir+"/"+dirs[len(begun)]))
		}
		l := begun[0]
		begun, dirs = begun[1:], dirs[1:]
		return l
	}
}

// enters reports whether entry i of dir is a directory to walk.
func (w *walker) enters(dir, rel string, i sandbar.FileInfo) bool {
	return i.Mode.IsDir() && !special(dir+"/"+i.Name) && (w.prunes == nil || !w.prunes(rel+i.Name))
}

// special reports whether a directory is a kernel file system's.
func special(path string) bool { return path == "/proc" || path == "/sys" || path == "/dev" }

// regular visits the selected regular files.
func (w *walker) regular(ctx context.Context, choose func(rel string) bool, visit func(found) error) error {
	return w.walk(ctx, func(f found) error {
		if f.info.Mode&fs.ModeType != 0 || !choose(f.rel) {
			return nil
		}
		return visit(f)
	})
}

// ordered runs work for a sequence of tasks, ahead of them at once, and passes the results on in
// order. each produces the tasks; collect ends everything by returning false.
func ordered[J, T any](ctx context.Context, each func(ctx context.Context, begin func(J) error) error,
	work func(context.Context, J) T, collect func(T) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs := make(chan chan T, ahead)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	var walked error
	tasks.Go(func() {
		defer close(jobs)
		walked = each(ctx, func(j J) error {
			done := make(chan T, 1)
			select {
			case jobs <- done:
			case <-ctx.Done():
				return ctx.Err()
			}
			tasks.Go(func() { done <- work(ctx, j) })
			return nil
		})
	})
	for done := range jobs {
		if !collect(<-done) {
			return nil
		}
	}
	return walked
}
