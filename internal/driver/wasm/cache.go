package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
	"github.com/sandbar-dev/sandbar/internal/process/child"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// cache is the directory of compiled modules. It has one directory per combination of compiler,
// architecture and modules, which appears atomically when it is complete. Only the daemon's user
// may write it; runners only read it.
type cache struct {
	dir     string // of all combinations
	key     string
	modules string

	ctx     context.Context // of compilations, which outlive the request that started them
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	done     bool
	underWay *compilation // nil for none
}

// compilation is a compilation in progress, or a failed one.
type compilation struct {
	done chan struct{}
	err  error // valid after done is closed
}

// openCache opens or creates the cache's directory.
func openCache(dir, modules string) (*cache, error) {
	unusable := func(err error) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: optionCache, Err: err,
			Message: "the directory for compiled modules cannot be used",
			Fix:     "name another one with the wasm driver's option cache, or set XDG_CACHE_HOME"}
	}
	dir, err := cachedir.Open(dir, "sandbar", "wasm")
	if err != nil {
		return nil, unusable(err)
	}
	c := &cache{dir: dir, key: cacheKey(), modules: modules}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// compiler is the version of wazero; other versions cannot run its compiled code. A binary of "go
// test" does not know the versions of its dependencies, and wazero then uses another subdirectory;
// the key distinguishes the two.
const compiler = "v1.12.0"

// cacheKey identifies everything on which compiled code depends.
func cacheKey() string {
	h := sha256.New()
	add := func(s string) { h.Write([]byte(s + "\n")) }
	add(runtime.GOOS + "/" + runtime.GOARCH)
	add(compiler)
	known := "test"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/tetratelabs/wazero" {
				known = m.Version
			}
		}
	}
	add(known)
	for _, m := range artefact.Modules() {
		add(m.Prepared)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// tmpPrefix begins the name of the directory of a compilation in progress.
const tmpPrefix = ".compiling-"

// complete is a file that marks a finished compilation.
const complete = "complete"

func (c *cache) path() string { return filepath.Join(c.dir, c.key) }

func (c *cache) there() bool {
	_, err := os.Stat(filepath.Join(c.path(), complete))
	return err == nil
}

// ready returns the directory of compiled modules, and compiles them if it is missing. The
// compilation continues after the end of ctx, because the next request needs it too and would
// otherwise start over: a slow machine would never finish.
func (c *cache) ready(ctx context.Context, log *slog.Logger, wait func(string) func()) (string, error) {
	w := c.begin(log, wait)
	if w == nil {
		return c.path(), nil
	}
	select {
	case <-w.done:
		return c.path(), w.err
	case <-ctx.Done():
		err := sandbar.Errorf(sandbar.CodeOfContext(ctx), "the WebAssembly interpreters are still being compiled for this machine: %w", ctx.Err())
		err.Fix = "try again in a minute; \"sandbar prepare\" compiles them ahead"
		return "", err
	}
}

// begin returns the compilation in progress, after starting one if necessary, or nil if everything
// is compiled.
func (c *cache) begin(log *slog.Logger, wait func(string) func()) *compilation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done && c.there() {
		return nil
	}
	if c.underWay == nil {
		w := &compilation{done: make(chan struct{})}
		c.underWay = w
		c.running.Go(func() {
			w.err = c.compileLocked(c.ctx, log, wait)
			c.mu.Lock()
			c.done, c.underWay = w.err == nil, nil
			c.mu.Unlock()
			close(w.done)
		})
	}
	return c.underWay
}

// compileLocked compiles the modules, unless another process has done it while this one waited for
// the lock.
func (c *cache) compileLocked(ctx context.Context, log *slog.Logger, wait func(string) func()) error {
	unlock, err := cachedir.Lock(ctx, c.dir)
	if err != nil {
		return sandbar.Errorf(sandbar.Unsupported, "waiting for the lock of the compiled modules: %w", err)
	}
	defer unlock()
	if c.there() {
		return nil
	}
	began := time.Now()
	log.Info("compiling the WebAssembly modules, once", "directory", c.path())
	done := wait("compiling the WebAssembly interpreters for this machine, once; this takes up to a minute")
	err = c.compile(ctx)
	done()
	if err == nil {
		log.Info("compiled the WebAssembly modules", "took", time.Since(began))
	}
	return err
}

// close cancels a compilation in progress.
func (c *cache) close() {
	c.cancel()
	c.running.Wait()
}

// compile makes a process compile into a new directory, which then replaces the final one
// atomically.
func (c *cache) compile(ctx context.Context) error {
	fail := func(what string, err error) error {
		return sandbar.Errorf(sandbar.Unsupported, "compiling the WebAssembly modules: %s: %w", what, err)
	}
	tmp, err := os.MkdirTemp(c.dir, tmpPrefix)
	if err != nil {
		return fail("making a directory", err)
	}
	defer os.RemoveAll(tmp)
	cmd, err := child.Command(ctx, guest.Args(guest.ModeCompile, tmp, c.modules), worker.Env())
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fail(sandbar.Quote(string(out), 300), err)
	}
	if err := os.WriteFile(filepath.Join(tmp, complete), nil, 0o600); err != nil {
		return fail("writing", err)
	}
	if err := os.RemoveAll(c.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail("replacing what is not complete", err)
	}
	if err := os.Rename(tmp, c.path()); err != nil {
		return fail("putting it in its place", err)
	}
	return nil
}

// collect finds, and with remove removes, the leftovers of killed compilations. Workers and runners
// leave nothing: they exit with the daemon.
func (c *cache) collect(remove bool) ([]driver.Leftover, error) {
	// No other process compiles while this one has the lock. If another has it, its compilation is
	// in progress and there is nothing to collect.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := cachedir.Lock(now, c.dir)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	defer unlock()
	found, err := filepath.Glob(filepath.Join(c.dir, tmpPrefix+"*"))
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	var left []driver.Leftover
	for _, name := range found {
		l := driver.Leftover{Kind: "directory", Name: name}
		if remove {
			l.Err = os.RemoveAll(name)
		}
		left = append(left, l)
	}
	return left, nil
}

// Collect finds, and with remove removes, the leftovers of killed daemons.
func (d *Driver) Collect(_ context.Context, remove bool) ([]driver.Leftover, error) {
	return d.cache.collect(remove)
}
