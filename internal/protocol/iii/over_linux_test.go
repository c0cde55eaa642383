package iii

import (
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// TestOver runs the tests over further drivers.
func TestOver(t *testing.T) {
	testenv.Need(t, testenv.Once)
	backends.Over(t, []backend.Case{
		{Name: "TheSpecsExample", Run: TestTheSpecsExample},
		{Name: "Exec", Run: TestExec},
		{Name: "ExecCutsOutputAndSaysSo", Run: TestExecCutsOutputAndSaysSo, Later: true},
		{Name: "ExecOutOfTime", Run: TestExecOutOfTime, Later: true},
		{Name: "ExecSlots", Run: TestExecSlots},
		{Name: "Run", Run: TestRun, Later: true},
		{Name: "RunTellsTheStep", Run: TestRunTellsTheStep, Later: true},
		{Name: "ListAndStop", Run: TestListAndStop, Later: true},
		{Name: "SandboxesShareNothing", Run: TestSandboxesShareNothing},
		{Name: "CallsAtTheSameTime", Run: TestCallsAtTheSameTime, Later: true},
		{Name: "LsAndStat", Run: TestLsAndStat},
		{Name: "FileFailures", Run: TestFileFailures},
		{Name: "MkdirRmChmodMv", Run: TestMkdirRmChmodMv, Later: true},
		{Name: "WriteInline", Run: TestWriteInline, Later: true},
		{Name: "GrepFiles", Run: TestGrepFiles, Later: true},
		{Name: "SedFiles", Run: TestSedFiles, Later: true},
		{Name: "Transfer", Run: TestTransfer},
		{Name: "TransferOf256MiB", Run: TestTransferOf256MiB, Later: true},
		{Name: "ReadBody", Run: TestReadBody, Later: true},
		{Name: "AbortedUpload", Run: TestAbortedUpload, Later: true},
		{Name: "FailedUploadTakesTheStream", Run: TestFailedUploadTakesTheStream, Later: true},
		{Name: "CopyBetweenSandboxes", Run: TestCopyBetweenSandboxes},
		{Name: "UnreadFileOfAStoppedSandbox", Run: TestUnreadFileOfAStoppedSandbox, Later: true},
		{Name: "ClientVanishes", Run: TestClientVanishes},
		{Name: "WorkerComesBack", Run: TestWorkerComesBack, Later: true},
		{Name: "ClientNpm", Run: TestClientNpm, Later: true},
		{Name: "ClientPython", Run: TestClientPython, Later: true},
		{Name: "ExampleNpm", Run: TestExampleNpm, Later: true},
		{Name: "ExamplePython", Run: TestExamplePython, Later: true},
	})
}
