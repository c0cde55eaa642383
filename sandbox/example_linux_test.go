package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar/sandbox"
)

// settings are for the examples, which must run anywhere: trusted code, no boundary. A program
// passes os.Environ instead, so that its operator chooses.
func settings() ([]string, func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	return []string{"SANDBOX_TYPE=local", "SANDBAR_RUNTIME_DIR=" + dir + "/run", "SANDBAR_CONFIG=/dev/null"}, func() { os.RemoveAll(dir) }
}

// Run a piece of code and print its result. A program calls Self first in main.
func Example() {
	environ, remove := settings()
	defer remove()
	box, err := sandbox.Open(sandbox.Options{Agent: sandbox.Self(), Environ: environ})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	r, err := box.Execute(context.Background(), sandbox.Request{
		Language: "shell",
		Code:     "echo hello; echo careful >&2; exit 3",
		Timeout:  5 * time.Second,
	})
	if err != nil {
		fmt.Println("it could not run:", err)
		return
	}
	fmt.Printf("stdout %q, stderr %q, exit code %d\n", r.Stdout, r.Stderr, r.ExitCode)
	fmt.Println(r.Truncated, r.TimedOut, r.Meta.Runtime)
	// Output:
	// stdout "hello\n", stderr "careful\n", exit code 3
	// false false local
}

// A program that reaches its time limit has a Result with its earlier output.
func ExampleSandbox_Execute_timeout() {
	environ, remove := settings()
	defer remove()
	box, err := sandbox.Open(sandbox.Options{Agent: sandbox.Self(), Environ: environ})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	r, err := box.Execute(context.Background(), sandbox.Request{Language: "shell", Code: "echo half; sleep 600", Timeout: 2 * time.Second})
	fmt.Printf("%q %d %v %v\n", r.Stdout, r.ExitCode, r.TimedOut, err)
	// Output:
	// "half\n" -1 true <nil>
}

// Compact returns one text for a model, as the result of a tool.
func ExampleResult_Compact() {
	environ, remove := settings()
	defer remove()
	r, err := sandbox.Execute(context.Background(), sandbox.Options{Agent: sandbox.Self(), Environ: environ},
		sandbox.Request{Language: "shell", Code: "echo no such thing >&2; exit 2"})
	if err != nil {
		fmt.Println("Error:", err)
		return
	}
	fmt.Println(r.Compact())
	// Output:
	// Error (exit_code=2): no such thing
}
