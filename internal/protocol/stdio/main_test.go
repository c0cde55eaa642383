package stdio

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	machine "github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

// The drivers wasm and v86 start the test's own binary.
func TestMain(m *testing.M) {
	switch {
	case worker.IsWorker():
		worker.Main()
	case guest.IsRunner():
		guest.Main()
	case machine.IsWorker():
		machine.Main()
	}
	goleak.VerifyTestMain(m)
}
