package faulty

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// memoryFS implements the files of a sandbox. It has files and directories, but no links.
type memoryFS struct {
	maxBytes    int64 // bytes in all files; not positive is no limit
	unsupported bool  // every operation fails with Unsupported

	mu    sync.Mutex
	used  int64
	nodes map[string]*node
}

// node is a file or directory. Its data is replaced, never changed.
type node struct {
	mode fs.FileMode
	data []byte
	time time.Time
}

func newMemoryFS(maxBytes int64, unsupported bool) *memoryFS {
	m := &memoryFS{maxBytes: maxBytes, unsupported: unsupported, nodes: map[string]*node{}}
	for _, d := range []string{"/", "/home", sandbar.DefaultDir, "/tmp"} {
		m.nodes[d] = &node{mode: fs.ModeDir | 0o755, time: time.Now()}
	}
	return m
}

// clean converts a path to a clean absolute one, or returns an error.
func (m *memoryFS) clean(p string) (string, error) {
	if m.unsupported {
		return "", sandbar.Errorf(sandbar.Unsupported, "faulty: there are no files")
	}
	if p == "" || strings.ContainsRune(p, 0) || len(p) > 4095 {
		return "", sandbar.Errorf(sandbar.Invalid, "the path is empty, too long or has a NUL")
	}
	if !path.IsAbs(p) {
		p = path.Join(sandbar.DefaultDir, p)
	}
	return path.Clean(p), nil
}

func fail(c sandbar.Code, p, what string) error {
	return sandbar.Errorf(c, "%s: %s", sandbar.Quote(p, 80), what)
}

// find returns the node at a path.
func (m *memoryFS) find(p string) (string, *node, error) {
	p, err := m.clean(p)
	if err != nil {
		return "", nil, err
	}
	n := m.nodes[p]
	if n == nil {
		return p, nil, fail(sandbar.NotFound, p, "no such file or directory")
	}
	return p, n, nil
}

// text returns a file's content.
func (m *memoryFS) text(p string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, n, err := m.find(p)
	if err != nil {
		return "", err
	}
	if n.mode.IsDir() {
		return "", fail(sandbar.Conflict, p, "it is a directory")
	}
	return string(n.data), nil
}

type memoryFile struct {
	*bytes.Reader
	info sandbar.FileInfo
}

func (f memoryFile) Info() sandbar.FileInfo { return f.info }
func (f memoryFile) Close() error           { return nil }

func (m *memoryFS) Open(_ context.Context, p string) (sandbar.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, n, err := m.find(p)
	if err != nil {
		return nil, err
	}
	if n.mode.IsDir() {
		return nil, fail(sandbar.Conflict, p, "it is a directory")
	}
	return memoryFile{bytes.NewReader(n.data), n.info(p)}, nil
}

func (n *node) info(p string) sandbar.FileInfo {
	return sandbar.FileInfo{Name: path.Base(p), Size: int64(len(n.data)), Mode: n.mode, ModTime: n.time}
}

// memoryWriter collects a file until Commit.
type memoryWriter struct {
	m     *memoryFS
	path  string
	mode  fs.FileMode
	data  []byte
	live  bool // an append: writes are seen at once
	ended bool
}

func (m *memoryFS) Create(_ context.Context, p string, opt sandbar.CreateOptions) (sandbar.FileWriter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.clean(p)
	if err != nil {
		return nil, err
	}
	if n := m.nodes[p]; n != nil && n.mode.IsDir() {
		return nil, fail(sandbar.Conflict, p, "it is a directory")
	}
	if err := m.parents(path.Dir(p), opt.Parents); err != nil {
		return nil, err
	}
	w := &memoryWriter{m: m, path: p, mode: opt.Mode.Perm(), live: opt.Append}
	if w.mode == 0 {
		w.mode = 0o644
	}
	if n := m.nodes[p]; n != nil && opt.Append {
		w.data, w.mode = slices.Clone(n.data), n.mode
	}
	return w, nil
}

// parents checks that a directory exists, and with create creates it and its parents.
func (m *memoryFS) parents(dir string, create bool) error {
	n := m.nodes[dir]
	switch {
	case n != nil && n.mode.IsDir():
		return nil
	case n != nil:
		return fail(sandbar.Conflict, dir, "it is not a directory")
	case !create:
		return fail(sandbar.NotFound, dir, "no such directory")
	}
	if err := m.parents(path.Dir(dir), true); err != nil {
		return err
	}
	m.nodes[dir] = &node{mode: fs.ModeDir | 0o755, time: time.Now()}
	return nil
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.ended {
		return 0, fail(sandbar.Conflict, w.path, "it is closed")
	}
	others := w.m.used // what is replaced counts until it is; what is appended to, once
	if n := w.m.nodes[w.path]; n != nil && w.live {
		others -= int64(len(n.data))
	}
	if w.m.maxBytes > 0 && others+int64(len(w.data)+len(p)) > w.m.maxBytes {
		return 0, fail(sandbar.NoSpace, w.path, "the disk is full")
	}
	w.data = append(w.data, p...)
	if w.live {
		w.m.put(w.path, w.mode, slices.Clone(w.data))
	}
	return len(p), nil
}

func (w *memoryWriter) Commit() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.ended {
		return nil
	}
	w.ended = true
	if n := w.m.nodes[w.path]; n != nil && n.mode.IsDir() {
		return fail(sandbar.Conflict, w.path, "it is a directory")
	}
	w.m.put(w.path, w.mode, w.data)
	return nil
}

func (w *memoryWriter) Abort() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.ended = true
}

func (m *memoryFS) put(p string, mode fs.FileMode, data []byte) {
	if n := m.nodes[p]; n != nil {
		m.used -= int64(len(n.data))
	}
	m.used += int64(len(data))
	m.nodes[p] = &node{mode: mode, data: data, time: time.Now()}
}

func (m *memoryFS) Stat(_ context.Context, p string) (sandbar.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, n, err := m.find(p)
	if err != nil {
		return sandbar.FileInfo{}, err
	}
	return n.info(p), nil
}

// below lists the paths in a directory, with deep recursively.
func (m *memoryFS) below(dir string, deep bool) (all []string) {
	prefix := strings.TrimSuffix(dir, "/") + "/"
	for p := range m.nodes {
		rest, ok := strings.CutPrefix(p, prefix)
		if ok && rest != "" && (deep || !strings.Contains(rest, "/")) {
			all = append(all, p)
		}
	}
	sort.Strings(all)
	return all
}

func (m *memoryFS) ReadDir(_ context.Context, p, after string, limit int) ([]sandbar.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, n, err := m.find(p)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, fail(sandbar.Conflict, p, "it is not a directory")
	}
	var infos []sandbar.FileInfo
	for _, e := range m.below(p, false) {
		if path.Base(e) > after && len(infos) < limit {
			infos = append(infos, m.nodes[e].info(e))
		}
	}
	return infos, nil
}

func (m *memoryFS) Mkdir(_ context.Context, p string, mode fs.FileMode, parents bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.clean(p)
	if err != nil {
		return err
	}
	if n := m.nodes[p]; n != nil {
		if parents && n.mode.IsDir() {
			return nil
		}
		return fail(sandbar.Exists, p, "it is there already")
	}
	if err := m.parents(path.Dir(p), parents); err != nil {
		return err
	}
	m.nodes[p] = &node{mode: fs.ModeDir | mode.Perm(), time: time.Now()}
	return nil
}

func (m *memoryFS) Remove(_ context.Context, p string, recursive bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, n, err := m.find(p)
	if err != nil {
		return err
	}
	under := m.below(p, true)
	if n.mode.IsDir() && len(under) > 0 && !recursive {
		return fail(sandbar.Conflict, p, "the directory is not empty")
	}
	for _, e := range append(under, p) {
		m.used -= int64(len(m.nodes[e].data))
		delete(m.nodes, e)
	}
	return nil
}

func (m *memoryFS) Rename(_ context.Context, from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, n, err := m.find(from)
	if err != nil {
		return err
	}
	if to, err = m.clean(to); err != nil {
		return err
	}
	if from == to {
		return nil
	}
	if strings.HasPrefix(to, from+"/") {
		return fail(sandbar.Invalid, to, "a directory cannot be moved into itself")
	}
	if err := m.parents(path.Dir(to), false); err != nil {
		return err
	}
	if old := m.nodes[to]; old != nil {
		if old.mode.IsDir() || n.mode.IsDir() {
			return fail(sandbar.Conflict, to, "it is there and cannot be replaced")
		}
		m.used -= int64(len(old.data))
	}
	for _, e := range m.below(from, true) {
		m.nodes[to+strings.TrimPrefix(e, from)] = m.nodes[e]
		delete(m.nodes, e)
	}
	m.nodes[to] = n
	delete(m.nodes, from)
	return nil
}

func (m *memoryFS) Chmod(_ context.Context, p string, mode fs.FileMode, recursive bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, _, err := m.find(p)
	if err != nil {
		return err
	}
	all := []string{p}
	if recursive {
		all = append(all, m.below(p, true)...)
	}
	for _, e := range all {
		n := *m.nodes[e]
		n.mode = n.mode.Type() | mode.Perm()
		m.nodes[e] = &n
	}
	return nil
}
