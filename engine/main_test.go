package engine_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Tests outside a bubble are checked for goroutine leaks here.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
