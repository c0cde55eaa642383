package vm

import (
	"os"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// later are the cases that run in "make test-all" only: an emulated machine takes seconds for each.
// "make test" keeps those in which a machine differs from other sandboxes.
func later() []string {
	return []string{
		"abilities/watcher", "contexts/[^ik]*", "dial/*", "endings/[a-oq-r]*", "endings/parallel-exits", "endings/signal-*", "endings/w*", "endings/start-cancelled",
		"escape/0*", "escape/11-*", "escape/12-*", "escape/14-*", "escape/2[0-27-9]*", "escape/25-signal-host", "escape/26-*", "escape/3*", "escape/4*",
		"escape/5[016]*", "escape/59-*", "escape/6[56]*", "escape/8*", "escape/9*",
		"files/[a-kn-z]*", "lifecycle/create-d*", "lifecycle/destroy-concurrent", "lifecycle/destroy-during-start", "lifecycle/destroy-impatient", "lifecycle/gone-*",
		"lifecycle/private-directories", "outbound/[dmu]*", "outbound/no-way-in", "outbound/refused-at-once", "limits/cpu*", "limits/memory", "limits/shared-memory", "limits/two-at-once", "limits/unlimited", "races/*", "saves/[b-jl-z]*",
		"streams/[a-ce-rt-z]*", "streams/s[l-p]*", "streams/stdin-[a-df-z]*", "streams/stdin-empty", "trees/[a-ce-fm-z]*", "trees/left-alone", "warm/*", "watches/flood",
	}
}

func knownFailures() map[string]string {
	known := map[string]string{"escape/42-core-limit": "a program can lower its own limit to 0; no handler runs, because core_pattern of the machine's kernel is sealed"}
	if os.Geteuid() == 0 { // an ordinary user has no control group that counts the monitor's memory
		known["escape/33-thrash"] = "it judges by the peak of memory, which is that of the machine with its monitor on the host; limits/* test what programs get"
	}
	return known
}

func TestConformance(t *testing.T) {
	binary := agentBinary(t)
	drivertest.Run(t, drivertest.Harness{
		Name: Name, Skips: "testdata/skips.golden", Slow: true, Options: testOptions(t), Later: later(),
		KnownFailures: knownFailures(),
		New:           func(h driver.Host) (driver.Driver, error) { return New(h, binary) },
	})
}

// TestKernel checks that programs run on the guest's kernel.
func TestKernel(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	d := newDriver(t, testOptions(t))
	if got, want := run(t, newBox(t, d, "kernel"), "uname", "-r"), d.kernel.Release+"\n"; got != want {
		t.Errorf("uname -r prints %q, want %q", got, want)
	}
}
