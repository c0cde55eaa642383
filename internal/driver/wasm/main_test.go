package wasm

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/internal/wasm/guest"
	"github.com/sandbar-dev/sandbar/internal/wasm/worker"
)

func TestMain(m *testing.M) {
	switch {
	case worker.IsWorker():
		worker.Main()
	case guest.IsRunner():
		guest.Main()
	}
	goleak.VerifyTestMain(m)
}
