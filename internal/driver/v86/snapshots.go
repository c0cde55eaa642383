package v86

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
	"github.com/sandbar-dev/sandbar/internal/process/child"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

// snapshots is the cache of booted machines: one file for each image, memory size and version of
// the emulator.
type snapshots struct {
	log     *slog.Logger
	image   string // absolute
	kind    image.Type
	modules string
	version string
	limit   time.Duration
	dir     string
	// progress receives the progress of boots as text.
	progress func(text string)

	ctx     context.Context // of boots
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	boots map[string]*boot // by key
}

// version identifies everything on which a snapshot depends besides image and memory size.
func version(pc artefact.Emulator) string {
	h := sha256.New()
	fmt.Fprintln(h, wire.Generation)
	for _, part := range [][]byte{pc.Script, pc.Core, pc.BIOS, pc.VGA, pc.Guest} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// open opens or creates the cache's directory.
func (s *snapshots) open(dir string) error {
	dir, err := cachedir.Open(dir, "sandbar", Name)
	if err == nil {
		s.dir = dir
		err = os.MkdirAll(s.compiled(), 0o700)
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: OptionCache, Err: err,
			Message: "the directory for snapshots cannot be used",
			Fix:     "set XDG_CACHE_HOME to a directory that this user owns"}
	}
	return nil
}

// writable returns an error if no file can be created in dir.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, tmpPrefix)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// compiled returns the directory of the compiled emulator, which depends on the version of the
// compiler (wazero).
func (s *snapshots) compiled() string {
	name := "compiled"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/tetratelabs/wazero" {
				name += "-" + m.Version
			}
		}
	}
	return filepath.Join(s.dir, name)
}

// key returns the snapshot's name for a memory size: a hash of the version, the memory size and the
// image's content.
func (s *snapshots) key(memory int64) (string, error) {
	f, err := image.Open(s.image)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	fmt.Fprintln(h, s.version, memory)
	if err := f.Hash(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// tmpPrefix begins the name of an incomplete file.
const tmpPrefix = ".booting-"

// get returns the path of the snapshot for a memory size, and boots the image if there is none. The
// boot continues after the end of ctx, and the next call waits for the same boot.
func (s *snapshots) get(ctx context.Context, memory int64) (string, error) {
	key, err := s.key(memory)
	if err != nil {
		return "", sandbar.Errorf(sandbar.Unavailable, "reading the image: %w", err)
	}
	path := filepath.Join(s.dir, key+".snapshot")
	if touch(path) {
		return path, nil
	}
	b, err := s.startBoot(key, path, memory)
	if err != nil {
		return "", err
	}
	select {
	case <-b.done:
		return path, b.err
	case <-ctx.Done():
		return "", sandbar.Errorf(sandbar.Unavailable, "the image is still booting: %w", ctx.Err())
	}
}

// touch reports whether a snapshot exists, and sets its modification time for prune.
func touch(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

// boot is a boot in progress, or one that failed. A failed one is not repeated, because it takes
// long and would fail again.
type boot struct {
	done chan struct{}
	err  error // valid after done is closed
}

// startBoot returns the boot for a key, after starting one if necessary.
func (s *snapshots) startBoot(key, path string, memory int64) (*boot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	}
	b := s.boots[key]
	if b == nil {
		b = &boot{done: make(chan struct{})}
		s.boots[key] = b
		s.running.Go(func() {
			b.err = s.bootLocked(path, memory)
			if b.err == nil { // if the file is removed later, the image boots again
				s.mu.Lock()
				delete(s.boots, key)
				s.mu.Unlock()
			}
			close(b.done)
		})
	}
	return b, nil
}

// close cancels boots in progress and waits for them.
func (s *snapshots) close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

// bootLocked boots the image, unless another process has done it while this one waited for the
// lock.
func (s *snapshots) bootLocked(path string, memory int64) error {
	unlock, err := cachedir.Lock(s.ctx, s.dir)
	if err != nil {
		return sandbar.Errorf(sandbar.Unavailable, "waiting for another boot: %w", err)
	}
	defer unlock()
	if touch(path) {
		return nil // another process has booted it
	}
	s.prune()
	return s.boot(s.ctx, path, memory)
}

// unusedFor is the time after which an unused snapshot is removed.
const unusedFor = 30 * 24 * time.Hour

// prune removes snapshots that were not used for unusedFor, and leftovers of killed boots. The
// caller has the lock.
func (s *snapshots) prune() {
	_, _ = s.leftovers(true)                                      // it will be tried again
	found, _ := filepath.Glob(filepath.Join(s.dir, "*.snapshot")) // the pattern is right
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > unusedFor {
			_ = os.Remove(name) // it will be tried again
		}
	}
}

// maxSnapshot bounds the size of a snapshot in bytes: the machine's memory, its disk, and the state
// of its devices.
func maxSnapshot(memory int64) int64 { return memory + image.MaxSize + 256<<20 }

// boot makes a worker boot the image, and writes the snapshot to path.
func (s *snapshots) boot(ctx context.Context, path string, memory int64) error {
	began := time.Now()
	s.progress(fmt.Sprintf("booting the image (%s) with %d MiB; later sandboxes start from its snapshot in about a second", s.kind, memory>>20))
	fail := func(err error) error { return sandbar.Errorf(sandbar.Unavailable, "writing the snapshot: %w", err) }
	tmp, err := os.CreateTemp(s.dir, tmpPrefix)
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	status := &statusLines{progress: s.progress, log: s.log}
	job := worker.Job{Mode: worker.ModeBoot, Modules: s.modules, Cache: s.compiled(), Path: s.image, Memory: memory, Limit: s.limit}
	p, err := child.Start(job.Args(), worker.Env(), status)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	n, err := io.Copy(tmp, io.LimitReader(p.Conn(), maxSnapshot(memory)))
	if n == maxSnapshot(memory) {
		err = errors.New("the snapshot is larger than the machine")
		p.Kill()
	}
	<-p.Ended()
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err = errors.Join(err, p.Stop(clean))
	switch {
	case ctx.Err() != nil:
		return sandbar.Errorf(sandbar.Canceled, "booting the image: %w", ctx.Err())
	case p.Err() != nil:
		return status.explain(sandbar.Errorf(sandbar.Unavailable, "the machine has stopped: its process exited: %w", p.Err()))
	case err != nil:
		return fail(err)
	}
	if err := tmp.Sync(); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fail(err)
	}
	s.progress(fmt.Sprintf("the image has booted in %v", time.Since(began).Round(100*time.Millisecond)))
	return nil
}

// collect finds, and with remove removes, the leftovers of killed boots.
func (s *snapshots) collect(remove bool) ([]driver.Leftover, error) {
	// No other process boots while this one has the lock. If another has it, its boot is in
	// progress and there is nothing to collect.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := cachedir.Lock(now, s.dir)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	defer unlock()
	return s.leftovers(remove)
}

func (s *snapshots) leftovers(remove bool) ([]driver.Leftover, error) {
	found, err := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*"))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	var left []driver.Leftover
	for _, name := range found {
		l := driver.Leftover{Kind: "file", Name: name}
		if remove {
			l.Err = os.Remove(name)
		}
		left = append(left, l)
	}
	return left, nil
}
