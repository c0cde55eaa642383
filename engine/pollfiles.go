package engine

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	pollInterval = 250 * time.Millisecond
	// maxPolled bounds the entries of a polled tree: each poll lists all of them.
	maxPolled = 10_000
	pollPage  = 1000 // entries of one listing
)

// polledFiles is a watch by comparison of listings, for drivers whose FS does not watch. It reports
// a rename as a removal and a creation, and does not see a change that is undone between two polls.
type polledFiles struct {
	fs        sandbar.FS
	path      string
	recursive bool
	closing   context.Context
	close     context.CancelFunc
	known     map[string]polledFile
	events    []sandbar.FileEvent // not delivered yet
	gone      bool                // the directory was removed
}

// polledFile is what a poll compares.
type polledFile struct {
	size     int64
	modified time.Time
	mode     fs.FileMode
	uid, gid uint32
}

// pollFiles begins a watch.
func pollFiles(ctx context.Context, files sandbar.FS, path string, recursive bool) (sandbar.FileWatch, error) {
	p := &polledFiles{fs: files, path: path, recursive: recursive}
	var err error
	if p.known, err = p.list(ctx); err != nil {
		return nil, err
	}
	p.closing, p.close = context.WithCancel(context.Background())
	return p, nil
}

// list returns all entries of the tree by their paths.
func (p *polledFiles) list(ctx context.Context) (map[string]polledFile, error) {
	all := map[string]polledFile{}
	for queue := []string{""}; len(queue) > 0; queue = queue[1:] {
		below, err := p.listDir(ctx, queue[0], all)
		if err != nil && (queue[0] == "" || sandbar.CodeOf(err) == sandbar.Exhausted) {
			return nil, err
		}
		queue = append(queue, below...)
	}
	return all, nil
}

// listDir adds the entries of one directory to all, and returns its directories.
func (p *polledFiles) listDir(ctx context.Context, dir string, all map[string]polledFile) (below []string, err error) {
	path, prefix := p.path, ""
	if dir != "" {
		path, prefix = p.path+"/"+dir, dir+"/"
	}
	for after := ""; ; {
		page, err := p.fs.ReadDir(ctx, path, after, pollPage)
		if err != nil {
			return nil, err
		}
		for _, f := range page {
			name := prefix + f.Name
			all[name] = polledFile{f.Size, f.ModTime, f.Mode, f.UID, f.GID}
			if f.Mode.IsDir() && p.recursive {
				below = append(below, name)
			}
		}
		if len(all) > maxPolled {
			return nil, &sandbar.Error{Code: sandbar.Exhausted, Field: "path",
				Message: "watch " + sandbar.Quote(p.path, 200) + ": more than " + strconv.Itoa(maxPolled) + " files, and this driver compares listings",
				Fix:     "watch a smaller directory"}
		}
		if len(page) < pollPage {
			return below, nil
		}
		after = page[len(page)-1].Name
	}
}

// Next implements sandbar.FileWatch.
func (p *polledFiles) Next(ctx context.Context) (sandbar.FileEvent, error) {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	for len(p.events) == 0 {
		if p.gone {
			return sandbar.FileEvent{}, io.EOF
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return sandbar.FileEvent{}, sandbar.Errorf(sandbar.CodeOfContext(caller), "watch %s: %w", sandbar.Quote(p.path, 200), ctx.Err())
		}
		if err := p.poll(ctx); err != nil {
			return sandbar.FileEvent{}, err
		}
	}
	e := p.events[0]
	p.events = p.events[1:]
	return e, nil
}

// poll lists the tree again and adds an event for each difference.
func (p *polledFiles) poll(ctx context.Context) error {
	now, err := p.list(ctx)
	switch sandbar.CodeOf(err) {
	case "":
	case sandbar.NotFound, sandbar.Conflict:
		p.gone = true
		p.add(sandbar.FileRemoved, "")
		return nil
	case sandbar.Exhausted: // the tree has grown too large to be listed
		p.add(sandbar.FileEventsLost, "")
		return nil
	default:
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(p.known)) {
		if _, ok := now[path]; !ok {
			p.add(sandbar.FileRemoved, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		before, known := p.known[path]
		switch f := now[path]; {
		case !known || before.mode.Type() != f.mode.Type():
			p.add(sandbar.FileCreated, path)
		case f.mode.IsRegular() && (before.size != f.size || !before.modified.Equal(f.modified)):
			p.add(sandbar.FileWritten, path)
		case before.mode != f.mode || before.uid != f.uid || before.gid != f.gid:
			p.add(sandbar.FileChmod, path)
		}
	}
	p.known = now
	return nil
}

func (p *polledFiles) add(op sandbar.FileOp, path string) {
	p.events = append(p.events, sandbar.FileEvent{Op: op, Path: path})
}

// Close implements sandbar.FileWatch.
func (p *polledFiles) Close() error {
	p.close()
	return nil
}
