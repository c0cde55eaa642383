package executor

import (
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// TestOver runs the tests over further drivers.
func TestOver(t *testing.T) {
	backends.Over(t, []backend.Case{
		{Name: "Run", Run: TestRun},
		{Name: "WorkingDirectory", Run: TestWorkingDirectory},
		{Name: "RunReadsBothPipes", Run: TestRunReadsBothPipes},
		{Name: "BackgroundChildren", Run: TestBackgroundChildren, Later: true},
		{Name: "WholeTreesEnd", Run: TestWholeTreesEnd, Later: true},
		{Name: "LongRealLine", Run: TestLongRealLine, Later: true},
		{Name: "InvalidUTF8", Run: TestInvalidUTF8},
		{Name: "ShortProcesses", Run: TestShortProcesses, Later: true},
		{Name: "HundredSubscribers", Run: TestHundredSubscribers, Later: true},
		{Name: "KillDuringOutput", Run: TestKillDuringOutput},
		{Name: "EveryLine", Run: TestEveryLine, Later: true},
		{Name: "RealFiles", Run: TestRealFiles},
		{Name: "LongDirectory", Run: TestLongDirectory, Later: true},
		{Name: "BigRealFiles", Run: TestBigRealFiles, Later: true},
		{Name: "ProxyHalfClose", Run: TestProxyHalfClose},
		{Name: "TwoHundredClients", Run: TestTwoHundredClients, Later: true},
		{Name: "StalledRealClient", Run: TestStalledRealClient, Later: true},
	})
}
