package engine_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// printer is a Sink that prints.
type printer struct{}

func (printer) Started() { fmt.Println("started") }

func (printer) Output(c sandbar.Chunk) error {
	_, err := fmt.Fprintf(os.Stdout, "%v: %s", c.Stream, c.Data)
	return err
}

// The examples use a test driver whose programs are scripts in a small language. With a real driver
// the code is Python.
func newExample() *engine.Engine {
	e, err := engine.New(engine.Config{Driver: faulty.New()})
	if err != nil {
		panic(err)
	}
	return e
}

// One one-shot execution, with its output as it arrives.
func ExampleEngine_Run() {
	e := newExample()
	defer e.Shutdown(context.Background())

	result, err := e.Run(context.Background(), sandbar.Job{
		Language: "python",
		Code:     "print stdout hello\nexit 3",
	}, printer{})
	if err != nil {
		fmt.Println("the platform could not:", err)
		return
	}
	fmt.Println(result.Outcome, result.ExitCode)
	// Output:
	// started
	// stdout: hello
	// exited 3
}

// A program that reaches its time limit is a result and not an error. Its earlier output has been
// delivered.
func ExampleEngine_Run_timeout() {
	e := newExample()
	defer e.Shutdown(context.Background())

	result, err := e.Run(context.Background(), sandbar.Job{
		Spec: sandbar.Spec{Limits: sandbar.Limits{Timeout: time.Second}},
		Cmd:  sandbar.Cmd{Args: []string{"print", "stdout", "half", ";", "sleep", "1h"}},
	}, printer{})
	fmt.Println(result.Outcome, err)
	// Output:
	// started
	// stdout: half
	// timeout <nil>
}

// A request that cannot be met is an error with the field and the allowed values.
func ExampleEngine_Admit() {
	e := newExample()
	defer e.Shutdown(context.Background())

	_, err := e.Admit(sandbar.Job{
		Language: "python",
		Spec:     sandbar.Spec{Limits: sandbar.Limits{Memory: 8 << 30}},
	})
	fmt.Println(sandbar.CodeOf(err))
	fmt.Println(err)
	// Output:
	// invalid
	// limits.memory: 8 GiB is out of range; allowed: 16 MiB to 1 GiB
}

// A long-lived sandbox keeps its files between programs.
func ExampleSandbox_Exec() {
	e := newExample()
	defer e.Shutdown(context.Background())
	ctx := context.Background()

	box, err := e.Create(ctx, sandbar.Spec{Labels: map[string]string{"for": "an example"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, args := range [][]string{{"save", "note", "remember me"}, {"cat", "note"}} {
		if _, err := box.Exec(ctx, sandbar.Cmd{Args: args}, nil, sandbar.Limits{}, printer{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println()
	fmt.Println(e.Stop(ctx, box.ID()))
	// Output:
	// started
	// started
	// stdout: remember me
	// <nil>
}

// A background process keeps its output for later readers, from any offset.
func ExampleProcess_Follow() {
	e := newExample()
	defer e.Shutdown(context.Background())
	ctx := context.Background()

	box, err := e.Create(ctx, sandbar.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"write", "stdout", "0123456789"}}, nil, sandbar.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-p.Done()
	err = p.Follow(ctx, engine.Offsets{Stdout: 7}, func(c sandbar.Chunk) error {
		fmt.Printf("from %d: %s\n", c.Offset, c.Data)
		return nil
	})
	fmt.Println(err)
	// Output:
	// from 7: 789
	// <nil>
}
