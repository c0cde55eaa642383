package function

import (
	"context"
	"testing"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// testEngine is an engine over the faulty driver.
func testEngine(t testing.TB) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{Driver: faulty.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Shutdown(context.Background()) })
	return e
}
