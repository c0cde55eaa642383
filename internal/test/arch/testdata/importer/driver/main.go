// A program of another module: a driver, and an engine over it. The driver's sandboxes have one
// program, echo, which writes its arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
)

type echoDriver struct{}

func (echoDriver) Caps() driver.Caps {
	return driver.Caps{Name: "echo", Boundary: driver.BoundaryWasm, Enforced: sandbar.Enforcements{
		Memory: sandbar.EnforcedRuntime, CPUs: sandbar.EnforcedRuntime, CPUShares: sandbar.EnforcedRuntime, PIDs: sandbar.EnforcedRuntime,
		Disk: sandbar.EnforcedRuntime, Inodes: sandbar.EnforcedRuntime, Files: sandbar.EnforcedRuntime}}
}

func (echoDriver) Create(context.Context, sandbar.ID, sandbar.Spec) (driver.Sandbox, error) {
	return echoSandbox{}, nil
}

// echoSandbox has no files: the methods of its FS are those of the nil interface, and echo calls none.
type echoSandbox struct{}

type noFiles struct{ sandbar.FS }

func (echoSandbox) FS() sandbar.FS { return noFiles{} }

func (echoSandbox) Start(_ context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	if c.Args[0] != "echo" {
		return nil, sandbar.Errorf(sandbar.NotFound, "there is no program %s", sandbar.Quote(c.Args[0], 40))
	}
	p := echoProcess{make(chan struct{})}
	go func() {
		defer close(p.ended)
		io.WriteString(std.Stdout, strings.Join(c.Args[1:], " ")+"\n")
	}()
	return p, nil
}

func (echoSandbox) Destroy(context.Context) error { return nil }

type echoProcess struct{ ended chan struct{} }

func (p echoProcess) Wait() (sandbar.Result, error) {
	<-p.ended
	return sandbar.Result{Outcome: sandbar.Exited}, nil
}

func (echoProcess) Signal(int) error { return nil }

func (echoProcess) KillTree() error { return nil }

func (echoProcess) PID() int { return 0 }

type printer struct{}

func (printer) Started() {}

func (printer) Output(c sandbar.Chunk) error {
	_, err := os.Stdout.Write(c.Data)
	return err
}

func main() {
	e, err := engine.New(engine.Config{Driver: echoDriver{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := e.Run(context.Background(), sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"echo", "from", "another", "module"}}}, printer{})
	fmt.Println(result.Outcome, err, e.Shutdown(context.Background()))
}
