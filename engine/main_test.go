package engine_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Tests outside a bubble are checked here for goroutines they leave.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
