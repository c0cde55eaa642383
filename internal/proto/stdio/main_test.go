package stdio

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// The wasm driver starts the test's own binary.
func TestMain(m *testing.M) {
	switch {
	case worker.IsWorker():
		worker.Main()
	case guest.IsRunner():
		guest.Main()
	}
	goleak.VerifyTestMain(m)
}
