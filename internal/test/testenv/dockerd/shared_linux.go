package dockerd

import (
	"context"
	"sync"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Image is the image in a Shared engine: Debian with Python.
const Image = "sandbar-test:debian"

// Shared is one engine for all tests of a package, started at its first use. TestMain must
// call Stop. The zero value is ready to use.
type Shared struct {
	mu     sync.Mutex
	engine *Engine
	err    error
}

// Engine returns the engine, which has Image. It skips the test if this host cannot run an engine.
func (s *Shared) Engine(t testing.TB) *Engine {
	t.Helper()
	testenv.Need(t, testenv.Docker, testenv.DebianImage)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == nil && s.err == nil {
		s.engine, s.err = s.start()
	}
	if s.err != nil {
		t.Fatalf("a Docker Engine for tests: %v", s.err)
	}
	return s.engine
}

func (s *Shared) start() (*Engine, error) {
	ctx := context.Background() // not the test's: all tests share the engine; Start and Import are bounded
	e, err := Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.Import(ctx, testenv.DebianArchive(), Image); err != nil {
		_ = e.Stop()
		return nil, err
	}
	return e, nil
}

// Stop stops the engine, if it was started.
func (s *Shared) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == nil {
		return nil
	}
	e := s.engine
	s.engine = nil
	return e.Stop()
}

// Running returns the engine if it has been started.
func (s *Shared) Running() (*Engine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine, s.engine != nil
}
