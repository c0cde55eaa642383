package image

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Image is an image in the store.
type Image struct {
	// ID is "sha256:" and the hexadecimal digest of the configuration. It identifies the content of
	// all layers and the configuration.
	ID string `json:"id"`
	// Names are its references, sorted.
	Names []string `json:"names"`
	// Arch is its processor architecture, a GOARCH: "amd64".
	Arch string `json:"arch,omitempty"`
	// Env, WorkDir, User, Entrypoint and Cmd are those of the image's configuration. They are
	// information only: callers choose how programs start.
	Env        []string `json:"env,omitempty"`
	WorkDir    string   `json:"work_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// Size is the size of the files of all layers, in bytes. Entries is the number of their files,
	// directories and links, Dropped that of omitted devices and FIFOs.
	Size    int64 `json:"size"`
	Entries int64 `json:"entries"`
	Dropped int64 `json:"dropped"`
	// Added is when it was added to the store.
	Added time.Time `json:"added"`
	// InUse reports that a sandbox of any process uses it.
	InUse bool `json:"in_use"`

	// Dir is its root on the host; see driver.Image for its rules.
	Dir string `json:"-"`
}

// Store keeps images in a directory. Several processes may share one. Its methods may be called
// concurrently.
type Store struct {
	dir    string
	limits Limits
	memory int64 // of an unpacker

	mu     sync.Mutex
	leases map[string]*lease // by ID
}

// lease is a shared lock on an image for all sandboxes of this process.
type lease struct {
	lock  *os.File
	users int
}

// Files of a store. An image is a directory idDir(ID) with rootName, infoName and lockName. An
// unfinished one is a directory with the prefix tempPrefix, and has a lockName too.
const (
	rootName   = "root"
	infoName   = "image.json"
	lockName   = "lock"
	namesName  = "names.json"
	tempPrefix = "tmp-"
	pullPrefix = "pull-"
	idPrefix   = "sha256:"
	dirPrefix  = "sha256-"
)

// OpenStore opens the store in a directory, after creating it if missing. The directory must belong
// to the user; Denied if others can write to it.
func OpenStore(dir string, limits Limits) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failed("making the directory for images", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, failed("opening the directory for images", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, &sandbar.Error{Code: sandbar.Denied, Field: "state_dir",
			Message: "others may write to " + sandbar.Quote(dir, 200) + ", where images are kept",
			Fix:     "as its owner: chmod 0700 it"}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, failed("opening the directory for images", err)
	}
	return &Store{dir: abs, limits: limits.withDefaults(), memory: maxMemory, leases: map[string]*lease{}}, nil
}

func (s *Store) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// idDir returns the directory name of an image, "" for a malformed ID.
func idDir(id string) string {
	hex, ok := strings.CutPrefix(id, idPrefix)
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return ""
	}
	return dirPrefix + hex
}

// binding is the target of a name.
type binding struct {
	ID string `json:"id"`
	// Manifest is the digest of the manifest in the registry, "" for imports.
	Manifest string `json:"manifest,omitempty"`
}

// names reads the name table. A malformed table is an error, because rewriting it would lose its
// content.
func (s *Store) names() (map[string]binding, error) {
	b, err := os.ReadFile(s.path(namesName))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]binding{}, nil
	}
	if err != nil {
		return nil, failed("reading the names of images", err)
	}
	names := map[string]binding{}
	if err := json.Unmarshal(b, &names); err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "%s is damaged; without it images have no names: %w", s.path(namesName), err)
	}
	return names, nil
}

// changeNames changes the name table, under an exclusive lock.
func (s *Store) changeNames(ctx context.Context, change func(map[string]binding) error) error {
	lock, err := waitLock(ctx, s.path(lockName))
	if err != nil {
		return failed("locking the names of images", err)
	}
	defer lock.Close()
	names, err := s.names()
	if err != nil {
		return err
	}
	before := maps.Clone(names)
	if err := change(names); err != nil || maps.Equal(before, names) {
		return err
	}
	b, err := json.MarshalIndent(names, "", "  ")
	if err != nil {
		return failed("writing the names of images", err)
	}
	return failed("writing the names of images", replaceFile(s.path(namesName), append(b, '\n')))
}

// replaceFile replaces a file atomically and durably: others see the old or the new content, even
// after a power failure.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// notInstalled returns the error for an image that is not in the store.
func notInstalled(name string) error {
	return &sandbar.Error{Code: sandbar.NotFound, Field: "image",
		Message: "image " + sandbar.Quote(name, 100) + " is not on this host",
		Fix:     "fetch it with `sandbar images pull`, or see `sandbar images list`"}
}

// Find returns an image by reference, ID, or at least twelve digits of the ID. NotFound: there is
// none. Invalid: the name is malformed.
func (s *Store) Find(name string) (Image, error) {
	names, err := s.names()
	if err != nil {
		return Image{}, err
	}
	id, err := s.findID(name, names)
	if err != nil {
		return Image{}, err
	}
	return s.load(id, names)
}

func (s *Store) findID(name string, names map[string]binding) (string, error) {
	if dir := idDir(name); dir != "" {
		return name, nil
	}
	hex := strings.TrimPrefix(name, idPrefix)
	if len(hex) >= 12 && len(hex) <= 64 && strings.Trim(hex, "0123456789abcdef") == "" {
		if id, err := s.findPrefix(name, hex); id != "" || err != nil {
			return id, err
		}
	}
	ref, err := ParseReference(name)
	if err != nil {
		return "", err
	}
	if b, ok := names[ref.Text]; ok {
		return b.ID, nil
	}
	if d := ref.Digest(); d != "" {
		for _, b := range names {
			if b.Manifest == d {
				return b.ID, nil
			}
		}
	}
	return "", notInstalled(name)
}

// findPrefix returns the ID that begins with these digits, "" if there is none.
func (s *Store) findPrefix(name, hex string) (string, error) {
	found, err := filepath.Glob(s.path(dirPrefix + hex + "*"))
	if err != nil || len(found) == 0 {
		return "", err
	}
	if len(found) > 1 {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "image",
			Message: "the IDs of " + number(int64(len(found))) + " images begin with " + sandbar.Quote(name, 100), Fix: "write more digits"}
	}
	return idPrefix + strings.TrimPrefix(filepath.Base(found[0]), dirPrefix), nil
}

// load reads an image's metadata.
func (s *Store) load(id string, names map[string]binding) (Image, error) {
	dir := idDir(id)
	b, err := os.ReadFile(s.path(dir, infoName))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, notInstalled(id)
	}
	var i Image
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	if err != nil {
		return Image{}, sandbar.Errorf(sandbar.Internal, "reading image %s: %w", id, err)
	}
	i.ID, i.Dir, i.Names = id, s.path(dir, rootName), []string{}
	for name, b := range names {
		if b.ID == id {
			i.Names = append(i.Names, name)
		}
	}
	slices.Sort(i.Names)
	return i, nil
}

// List returns all images of the store by name; those without a name come last.
func (s *Store) List() ([]Image, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(s.path(dirPrefix + "*"))
	if err != nil {
		return nil, failed("listing images", err)
	}
	images := []Image{}
	for _, dir := range dirs {
		i, err := s.load(idPrefix+strings.TrimPrefix(filepath.Base(dir), dirPrefix), names)
		if sandbar.CodeOf(err) == sandbar.NotFound {
			continue // just removed
		}
		if err != nil {
			return nil, err
		}
		i.InUse = inUse(filepath.Join(dir, lockName))
		images = append(images, i)
	}
	slices.SortFunc(images, func(a, b Image) int {
		if len(a.Names) == 0 || len(b.Names) == 0 {
			if len(a.Names) != len(b.Names) {
				return len(b.Names) - len(a.Names)
			}
			return strings.Compare(a.ID, b.ID)
		}
		return strings.Compare(a.Names[0], b.Names[0])
	})
	return images, nil
}

// inUse reports whether a lock is held.
func inUse(lock string) bool {
	f, err := tryLock(lock, true, false)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, errBusy)
}

// Use finds an image as Find does, and prevents its removal by any process until release is called.
func (s *Store) Use(ctx context.Context, name string) (i Image, release func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return Image{}, nil, failed("waiting for an image", err)
		}
		i, err = s.Find(name)
		if err != nil {
			return Image{}, nil, err
		}
		err = s.take(i.ID)
		if errors.Is(err, errBusy) {
			time.Sleep(lockPoll) // another process removes or examines it
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return Image{}, nil, notInstalled(name)
		}
		if err != nil {
			return Image{}, nil, failed("locking image "+i.ID, err)
		}
		return i, sync.OnceFunc(func() { s.giveBack(i.ID) }), nil
	}
}

func (s *Store) take(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		f, err := tryLock(s.path(idDir(id), lockName), false, false)
		if err != nil {
			return err
		}
		l = &lease{lock: f}
		s.leases[id] = l
	}
	l.users++
	return nil
}

func (s *Store) giveBack(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l.users--; l.users == 0 {
		l.lock.Close()
		delete(s.leases, id)
	}
}

// Remove removes a name. With its last name, or by its ID, it removes the image. Conflict: a
// sandbox uses the image.
func (s *Store) Remove(ctx context.Context, name string) (removed bool, err error) {
	var id string
	err = s.changeNames(ctx, func(names map[string]binding) error {
		if id, err = s.findID(name, names); err != nil {
			return err
		}
		i, err := s.load(id, names)
		if err != nil {
			return err
		}
		if ref, err := ParseReference(name); err == nil && len(i.Names) > 1 {
			if _, ok := names[ref.Text]; ok {
				delete(names, ref.Text)
				return nil
			}
		}
		if err := s.discard(idDir(id)); err != nil {
			return err
		}
		removed = true
		for _, n := range i.Names {
			delete(names, n)
		}
		return nil
	})
	return removed, err
}

// discard removes an unused image: first by an atomic rename, then its files.
func (s *Store) discard(dir string) error {
	lock, err := tryLock(s.path(dir, lockName), true, false)
	switch {
	case errors.Is(err, errBusy):
		return &sandbar.Error{Code: sandbar.Conflict, Field: "image",
			Message: "the image is in use by a sandbox", Fix: "stop its sandboxes first"}
	case errors.Is(err, fs.ErrNotExist):
		return notInstalled(dir)
	case err != nil:
		return failed("locking an image", err)
	}
	defer lock.Close()
	gone, err := os.MkdirTemp(s.dir, tempPrefix)
	if err != nil {
		return failed("removing an image", err)
	}
	if err := os.Rename(s.path(dir), filepath.Join(gone, "gone")); err != nil {
		return failed("removing an image", err)
	}
	return failed("removing an image", os.RemoveAll(gone))
}

// Leftover is an item that GC removes.
type Leftover struct {
	// Kind is "unfinished" for the remains of a killed process, "unnamed" for an image without a
	// name.
	Kind string `json:"kind"`
	// Name is a path, or the ID of an image.
	Name string `json:"name"`
	// Err is the reason why it could not be removed.
	Err error `json:"-"`
}

// GC finds, and with remove removes, the remains of killed processes, and images without a name
// that are not in use.
func (s *Store) GC(ctx context.Context, remove bool) ([]Leftover, error) {
	found, err := s.unfinished(remove)
	if err != nil {
		return found, err
	}
	images, err := s.List()
	if err != nil {
		return found, err
	}
	for _, i := range images {
		if len(i.Names) > 0 || i.InUse {
			continue
		}
		l := Leftover{Kind: "unnamed", Name: i.ID}
		if remove {
			l.Err = s.removeUnnamed(ctx, i.ID)
		}
		found = append(found, l)
	}
	return found, nil
}

// removeUnnamed removes an image unless it has got a name in the meantime.
func (s *Store) removeUnnamed(ctx context.Context, id string) error {
	return s.changeNames(ctx, func(names map[string]binding) error {
		for _, b := range names {
			if b.ID == id {
				return nil
			}
		}
		return s.discard(idDir(id))
	})
}

// unfinished finds directories and files whose process is dead.
func (s *Store) unfinished(remove bool) ([]Leftover, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, failed("listing images", err)
	}
	found := []Leftover{}
	for _, e := range entries {
		lock := ""
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			lock = s.path(e.Name(), lockName)
		case strings.HasPrefix(e.Name(), pullPrefix):
			lock = s.path(e.Name())
		case !strings.HasPrefix(e.Name(), ".new-"):
			continue
		}
		if lock != "" {
			f, err := tryLock(lock, true, false)
			if errors.Is(err, errBusy) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if f != nil {
				defer f.Close() // after the removal
			}
		}
		if lock == "" || !exists(lock) {
			// It may be so new that its creator has not locked it yet.
			if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < minLeftoverAge {
				continue
			}
		}
		l := Leftover{Kind: "unfinished", Name: s.path(e.Name())}
		if remove {
			l.Err = removeAll(l.Name)
		}
		found = append(found, l)
	}
	return found, nil
}

// minLeftoverAge is the age up to which an unlocked item counts as being created.
const minLeftoverAge = time.Minute

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
