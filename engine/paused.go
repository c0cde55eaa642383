package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Paused describes a paused sandbox.
type Paused struct {
	ID      sandbar.ID
	Spec    sandbar.Spec
	Created time.Time
	Since   time.Time // when it was paused
	Size    int64     // space on disk, in bytes
	Note    []byte    // of Sandbox.SetNote
	// Suspended: Suspend has paused it, and the next process is to resume it.
	Suspended bool `json:",omitempty"`
}

// pausedFile is the description of a paused sandbox on disk.
type pausedFile struct {
	Format int
	Paused
	Lived time.Duration     // towards Config.MaxLifetime
	Env   map[string]string // see Sandbox.env
}

// pausedFormat changes when states are stored differently.
const pausedFormat = 1

// The files of a paused sandbox, in the directory that has its id as its name.
const (
	pausedInfo  = "sandbox.json"
	pausedState = "state" // of the driver
)

// The prefixes of directories that are not paused sandboxes: states that are being written, or
// removed. New removes those that a killed daemon has left.
const (
	pausingPrefix = ".new-"
	gonePrefix    = ".gone-"
	forkPrefix    = ".fork-"
)

// pausedEntry is a paused sandbox.
type pausedEntry struct {
	pausedFile
	broken error // why it cannot be resumed
	busy   bool  // being resumed or removed
	reads  int   // sandboxes that are being made from it
}

// pausedStore has the paused sandboxes of an Engine. Each is a directory, which appears complete by
// a rename and disappears by another one. So a daemon that is killed at any moment leaves whole
// ones.
type pausedStore struct {
	dir      string // "": there is none
	maxCount int
	maxBytes int64
	share    int // of both for a client with a name or a tenant, in percent; <0 all

	mu       sync.Mutex
	all      map[sandbar.ID]*pausedEntry
	reserved map[party]int // sandboxes that are being paused, by their client or tenant
}

// openPaused reads the directory of paused sandboxes, and removes what is incomplete.
func openPaused(c Config) (*pausedStore, error) {
	dir := c.PausedDir
	s := &pausedStore{dir: dir, maxCount: c.MaxPaused, maxBytes: c.MaxPausedBytes, share: c.PausedShare,
		all: map[sandbar.ID]*pausedEntry{}, reserved: map[party]int{}}
	if dir == "" {
		return s, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, badConfig("paused_dir", "cannot be read: "+err.Error())
	}
	for _, e := range entries {
		for _, prefix := range []string{pausingPrefix, gonePrefix, forkPrefix} {
			if strings.HasPrefix(e.Name(), prefix) {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					return nil, badConfig("paused_dir", "has a leftover that cannot be removed: "+err.Error())
				}
			}
		}
		if id, err := sandbar.ParseID(e.Name()); err == nil && e.IsDir() {
			s.all[id] = readPaused(filepath.Join(dir, e.Name()), id)
		}
	}
	return s, nil
}

// maxPausedInfo bounds a description, in bytes.
const maxPausedInfo = 4 << 20

// readPaused reads the description of a paused sandbox. One with a damaged description is kept, so
// that it is listed and can be removed.
func readPaused(dir string, id sandbar.ID) *pausedEntry {
	p := &pausedEntry{}
	b, err := os.ReadFile(filepath.Join(dir, pausedInfo))
	if err == nil && len(b) > maxPausedInfo {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = json.Unmarshal(b, &p.pausedFile)
	}
	switch {
	case err != nil:
		p.broken = &sandbar.Error{Code: sandbar.Gone, Message: "the description of the paused sandbox " + string(id) + " is damaged", Err: err,
			Fix: "remove it with `sandbar stop`; check the disk of the state directory"}
	case p.Format != pausedFormat:
		p.broken = &sandbar.Error{Code: sandbar.Unsupported, Message: "the sandbox " + string(id) + " was paused by another version of Sandbar",
			Fix: "resume it with that version, or remove it with `sandbar stop`"}
	case p.ID != id:
		p.broken = &sandbar.Error{Code: sandbar.Gone, Message: "the description of the paused sandbox " + string(id) + " is that of another one",
			Fix: "remove it with `sandbar stop`"}
	}
	if p.broken != nil {
		p.pausedFile = pausedFile{Paused: Paused{ID: id}}
		if info, err := os.Stat(dir); err == nil {
			p.Created, p.Since = info.ModTime(), info.ModTime()
		}
	}
	return p
}

// place is the place of a sandbox that is being paused. It counts towards the bounds until it is
// left, and commit leaves it.
type place struct {
	s      *pausedStore
	client party
	left   bool // guarded by s.mu
}

func (p *place) leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.end()
}

// end implements leave. The caller has s.mu.
func (p *place) end() {
	if p.left {
		return
	}
	p.left = true
	if p.s.reserved[p.client]--; p.s.reserved[p.client] == 0 {
		delete(p.s.reserved, p.client)
	}
}

// reserve takes a place for one more sandbox of a client, and returns the space that it may take,
// in bytes, 0 for no bound.
func (s *pausedStore) reserve(c sandbar.Client) (bytes int64, p *place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return 0, nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "this process has no directory for paused sandboxes",
			Fix: "use a daemon (sandbar serve) that is the only one with its state_dir"}
	}
	client := partyOf(c)
	for _, q := range s.quotas(client) {
		if q.maxCount > 0 && q.count >= q.maxCount {
			return 0, nil, q.tooMany()
		}
		if q.maxBytes > 0 {
			left := q.maxBytes - q.bytes
			if left <= 0 {
				return 0, nil, q.tooLarge(0)
			}
			if bytes == 0 || left < bytes {
				bytes = left
			}
		}
	}
	s.reserved[client]++
	return bytes, &place{s: s, client: client}, nil
}

// quota is a bound of paused sandboxes, and how much of it is used. A bound of 0 or less is none.
type quota struct {
	of       string // whose: "the daemon", or a client
	setting  string // that the operator can raise besides the bounds, "" for none
	count    int    // with those that are being paused
	maxCount int
	bytes    int64
	maxBytes int64
}

// quotas returns the bounds that hold for a client: those of all sandboxes, and its share of them
// if it has a name. The caller has s.mu.
func (s *pausedStore) quotas(client party) []quota {
	all, own := quota{of: "the daemon", maxCount: s.maxCount, maxBytes: s.maxBytes}, quota{}
	for _, p := range s.all {
		all.count, all.bytes = all.count+1, all.bytes+p.Size
		if partyOf(p.Spec.Client) == client {
			own.count, own.bytes = own.count+1, own.bytes+p.Size
		}
	}
	for name, n := range s.reserved {
		all.count += n
		if name == client {
			own.count += n
		}
	}
	if client == (party{}) || s.share < 0 {
		return []quota{all}
	}
	own.of, own.setting = "the "+client.String(), "paused.client_share or "
	if s.maxCount > 0 {
		own.maxCount = max(1, s.maxCount*s.share/100)
	}
	if s.maxBytes > 0 {
		own.maxBytes = max(1, s.maxBytes/100*int64(s.share))
	}
	return []quota{all, own}
}

// tooMany is the error of a client or daemon that has its number of paused sandboxes.
func (q quota) tooMany() error {
	e := sandbar.Errorf(sandbar.Exhausted, "%s has %d paused sandboxes, and can have at most %d", q.of, q.count, q.maxCount)
	e.Fix = "resume or remove one, or let the operator raise " + q.setting + "paused.max"
	return e
}

// tooLarge is the error of a client or daemon whose paused sandboxes, with more bytes of another
// one, take too much space.
func (q quota) tooLarge(more int64) error {
	e := sandbar.Errorf(sandbar.Exhausted, "the paused sandboxes of %s take %s, and can take at most %s", q.of, showBytes(q.bytes+more), showBytes(q.maxBytes))
	e.Fix = "resume or remove one, or let the operator raise " + q.setting + "paused.max_bytes"
	return e
}

// begin makes the directory of a state that is not complete yet.
func (s *pausedStore) begin(prefix string) (tmp, state string, err error) {
	if tmp, err = os.MkdirTemp(s.dir, prefix); err == nil {
		state = filepath.Join(tmp, pausedState)
		err = os.Mkdir(state, 0o700)
	}
	if err != nil {
		os.RemoveAll(tmp)
		return "", "", sandbar.Errorf(sandbar.Unavailable, "making a directory for a sandbox's state: %w", err)
	}
	return tmp, state, nil
}

// commit completes the directory of begin, and leaves the place.
func (s *pausedStore) commit(tmp string, f pausedFile, p *place) error {
	f.Format = pausedFormat
	if err := writePaused(filepath.Join(tmp, pausedInfo), f); err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[f.ID] != nil {
		return sandbar.Errorf(sandbar.Internal, "sandbox %s is paused already", f.ID)
	}
	for _, q := range s.quotas(partyOf(f.Spec.Client)) { // others may have been paused since reserve
		if q.maxBytes > 0 && q.bytes+f.Size > q.maxBytes {
			return q.tooLarge(f.Size)
		}
	}
	path := filepath.Join(s.dir, string(f.ID))
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return errors.Join(err, os.Rename(path, tmp))
	}
	s.all[f.ID] = &pausedEntry{pausedFile: f}
	p.end()
	return nil
}

// writePaused writes a new file with a description.
func writePaused(path string, f pausedFile) error {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	info, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = info.Write(append(b, '\n'))
	return errors.Join(err, info.Sync(), info.Close())
}

// setNote replaces the note of a paused sandbox, also on disk.
func (s *pausedStore) setNote(id sandbar.ID, note []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.all[id]
	switch {
	case entry == nil:
		return noSandbox(id)
	case entry.busy:
		return sandbar.Errorf(sandbar.Conflict, "sandbox %s is being resumed or removed", id)
	case entry.broken != nil:
		return entry.broken
	}
	f := entry.pausedFile
	f.Note = note
	dir := filepath.Join(s.dir, string(id))
	tmp := filepath.Join(dir, pausedInfo+".new")
	os.Remove(tmp) // of a daemon that was killed
	err := writePaused(tmp, f)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, pausedInfo))
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		os.Remove(tmp)
		return sandbar.Errorf(sandbar.Unavailable, "storing the description of a paused sandbox: %w", err)
	}
	entry.pausedFile = f
	return nil
}

// syncDir brings the names in a directory to disk. Windows cannot.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// take reserves a paused sandbox for one call. The call ends with give or hide.
func (s *pausedStore) take(id sandbar.ID) (p pausedEntry, dir string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.all[id]
	switch {
	case entry == nil:
		return p, "", noSandbox(id)
	case entry.busy:
		return p, "", sandbar.Errorf(sandbar.Conflict, "sandbox %s is being resumed or removed", id)
	case entry.reads > 0:
		return p, "", sandbar.Errorf(sandbar.Conflict, "sandboxes are being made from the state of sandbox %s", id)
	}
	entry.busy = true
	return *entry, filepath.Join(s.dir, string(id)), nil
}

// read reserves a paused sandbox for reading its state until release is called. Others may read it
// too.
func (s *pausedStore) read(id sandbar.ID) (p pausedEntry, dir string, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.all[id]
	switch {
	case entry == nil:
		return p, "", nil, noSandbox(id)
	case entry.busy:
		return p, "", nil, sandbar.Errorf(sandbar.Conflict, "sandbox %s is being resumed or removed", id)
	case entry.broken != nil:
		return p, "", nil, entry.broken
	}
	entry.reads++
	return *entry, filepath.Join(s.dir, string(id)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		entry.reads--
	}, nil
}

// give returns a sandbox of take unchanged.
func (s *pausedStore) give(id sandbar.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[id].busy = false
}

// hide ends a sandbox of take. When it returns without an error, the sandbox is not paused in this
// life of the daemon or in another, and the caller removes the directory gone.
func (s *pausedStore) hide(id sandbar.ID) (gone string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, string(id))
	gone = filepath.Join(s.dir, gonePrefix+string(sandbar.NewID()))
	err = os.Rename(path, gone)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // someone has removed it by hand
	} else if err == nil {
		if err = syncDir(s.dir); err != nil {
			err = errors.Join(err, os.Rename(gone, path))
		}
	}
	if err != nil {
		return "", sandbar.Errorf(sandbar.Internal, "removing the state of a paused sandbox: %w", err)
	}
	delete(s.all, id)
	return gone, nil
}

// refusal returns Conflict if a sandbox is paused.
func (s *pausedStore) refusal(id sandbar.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] == nil {
		return nil
	}
	return isPaused(id)
}

// owner returns the client that has created a paused sandbox.
func (s *pausedStore) owner(id sandbar.ID) (c sandbar.Client, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[id]; p != nil {
		return p.Spec.Client, true
	}
	return c, false
}

// isPaused is the error of a call that a paused sandbox cannot serve.
func isPaused(id sandbar.ID) error {
	return &sandbar.Error{Code: sandbar.Conflict, Message: "sandbox " + string(id) + " is paused", Fix: "resume it first: sandbar resume " + string(id)}
}

// list returns the paused sandboxes, oldest first.
func (s *pausedStore) list() []Paused {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Paused, 0, len(s.all))
	for _, p := range s.all {
		all = append(all, p.Paused)
	}
	slices.SortFunc(all, func(a, b Paused) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}
