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
	"github.com/sandbar-dev/sandbar/internal/cachedir"
	"github.com/sandbar-dev/sandbar/internal/child"
	"github.com/sandbar-dev/sandbar/internal/v86/image"
	"github.com/sandbar-dev/sandbar/internal/v86/worker"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
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

	mu     sync.Mutex // one boot at a time; others wait
	failed map[string]error
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
// image if there is none.
func (s *snapshots) get(ctx context.Context, memory int64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.key(memory)
	if err != nil {
		return "", sandbar.Errorf(sandbar.Unavailable, "reading the image: %w", err)
	}
	path := filepath.Join(s.dir, key+".snapshot")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := s.failed[key]; err != nil {
		return "", err // it would again, and takes long
	}
	unlock, err := cachedir.Lock(ctx, s.dir)
	if err != nil {
		return "", sandbar.Errorf(sandbar.Unavailable, "waiting for another boot: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process was quicker
	}
	if err := s.boot(ctx, path, memory); err != nil {
		if ctx.Err() == nil {
			s.failed[key] = err
		}
		return "", err
	}
	return path, nil
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
	said := &speech{progress: s.progress}
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
