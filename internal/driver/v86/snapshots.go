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
	"github.com/sandbar-dev/sandbar/internal/process/child"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/cachedir"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

// snapshots is where machines that have booted are kept, one file for each
// image, size of memory and version of what made it.
type snapshots struct {
	log     *slog.Logger
	image   string // absolute
	kind    image.Type
	modules string
	version string
	limit   time.Duration
	dir     string
	// progress is told how far a boot is.
	progress func(text string)

	ctx     context.Context // of boots
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	boots map[string]*boot // by key
}

// version names all that a snapshot depends on besides image and memory.
func version(pc artefact.Emulator) string {
	h := sha256.New()
	fmt.Fprintln(h, wire.Generation)
	for _, part := range [][]byte{pc.Script, pc.Core, pc.BIOS, pc.VGA, pc.Guest} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// open finds or makes the cache's directory.
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
			Message: "the directory for machines that have booted cannot be used",
			Fix:     "name another one with XDG_CACHE_HOME"}
	}
	return nil
}

// writable fails where nothing can be written.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, booting)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// compiled is the directory of the compiled emulator, for one version of its
// compiler.
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

// key names the snapshot for a size of memory.
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

// booting begins the name of a file that is not complete yet.
const booting = ".booting-"

// get returns the path of the snapshot for a size of memory, and boots the
// image if there is none. A boot goes on when ctx ends: whoever asks next waits
// for the same one.
func (s *snapshots) get(ctx context.Context, memory int64) (string, error) {
	key, err := s.key(memory)
	if err != nil {
		return "", sandbar.Errorf(sandbar.Unavailable, "reading the image: %w", err)
	}
	path := filepath.Join(s.dir, key+".snapshot")
	if used(path) {
		return path, nil
	}
	b, err := s.booted(key, path, memory)
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

// used reports whether a snapshot is there, and notes that it is used.
func used(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

// boot is one that is under way, or has failed: it would again, and takes long.
type boot struct {
	done chan struct{}
	err  error // once done is closed
}

// booted returns the boot for a key, which it begins if there is none.
func (s *snapshots) booted(key, path string, memory int64) (*boot, error) {
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
			b.err = s.alone(path, memory)
			if b.err == nil { // should the file vanish, it boots again
				s.mu.Lock()
				delete(s.boots, key)
				s.mu.Unlock()
			}
			close(b.done)
		})
	}
	return b, nil
}

// close ends what is under way.
func (s *snapshots) close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

// alone boots the image unless another process does.
func (s *snapshots) alone(path string, memory int64) error {
	unlock, err := cachedir.Lock(s.ctx, s.dir)
	if err != nil {
		return sandbar.Errorf(sandbar.Unavailable, "waiting for another boot: %w", err)
	}
	defer unlock()
	if used(path) {
		return nil // another process was quicker
	}
	s.prune()
	return s.boot(s.ctx, path, memory)
}

// unusedFor is how long a snapshot that nobody uses is kept.
const unusedFor = 30 * 24 * time.Hour

// prune removes snapshots that have not been used for long, and what boots have
// left behind that were killed. The caller has the lock.
func (s *snapshots) prune() {
	_, _ = s.leftovers(true)                                      // it will be tried again
	found, _ := filepath.Glob(filepath.Join(s.dir, "*.snapshot")) // the pattern is right
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > unusedFor {
			_ = os.Remove(name) // it will be tried again
		}
	}
}

// maxSnapshot bounds a snapshot: the machine's memory and its disk, and what the
// emulator has besides.
func maxSnapshot(memory int64) int64 { return memory + image.MaxSize + 256<<20 }

// boot has a worker boot the image, and keeps the machine at path.
func (s *snapshots) boot(ctx context.Context, path string, memory int64) error {
	began := time.Now()
	s.progress(fmt.Sprintf("booting the image (%s) with %d MiB, once; later starts take a second", s.kind, memory>>20))
	fail := func(err error) error { return sandbar.Errorf(sandbar.Unavailable, "keeping the machine: %w", err) }
	tmp, err := os.CreateTemp(s.dir, booting)
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	said := &speech{progress: s.progress, log: s.log}
	job := worker.Job{Mode: worker.ModeBoot, Modules: s.modules, Cache: s.compiled(), Path: s.image, Memory: memory, Limit: s.limit}
	p, err := child.Start(job.Args(), worker.Env(), said)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	n, err := io.Copy(tmp, io.LimitReader(p.Conn(), maxSnapshot(memory)))
	if n == maxSnapshot(memory) {
		err = errors.New("the snapshot is larger than a machine can be")
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
		return said.explain(sandbar.Errorf(sandbar.Unavailable, "the machine does not run: its process ended: %w", p.Err()))
	case err != nil:
		return fail(err)
	}
	if err := tmp.Sync(); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fail(err)
	}
	s.progress(fmt.Sprintf("the image has booted, in %v", time.Since(began).Round(100*time.Millisecond)))
	return nil
}

// collect finds, and removes, what boots have left behind that were killed.
func (s *snapshots) collect(remove bool) ([]driver.Leftover, error) {
	// Nobody boots while we have the lock; who does is alive.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := cachedir.Lock(now, s.dir)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "looking for what is left over: %w", err)
	}
	defer unlock()
	return s.leftovers(remove)
}

func (s *snapshots) leftovers(remove bool) ([]driver.Leftover, error) {
	found, err := filepath.Glob(filepath.Join(s.dir, booting+"*"))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "looking for what is left over: %w", err)
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
