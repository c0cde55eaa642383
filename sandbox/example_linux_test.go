package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar/sandbox"
)

// settings are for the examples, which run anywhere: trusted code, no boundary. A
// program passes os.Environ on instead, and leaves the choice to its operator.
func settings() ([]string, func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	return []string{"SANDBOX_TYPE=local", "SANDBAR_RUNTIME_DIR=" + dir + "/run", "SANDBAR_CONFIG=/dev/null"}, func() { os.RemoveAll(dir) }
}

// Code in, result out. A program calls Self first in main.
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

// A program that runs out of time has a result like any other, with what it
// wrote until then.
func ExampleSandbox_Execute_timeout() {
	environ, remove := settings()
	defer remove()
	box, err := sandbox.Open(sandbox.Options{Agent: sandbox.Self(), Environ: environ})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	r, err := box.Execute(context.Background(), sandbox.Request{Language: "shell", Code: "echo half; sleep 600", Timeout: 200 * time.Millisecond})
	fmt.Printf("%q %d %v %v\n", r.Stdout, r.ExitCode, r.TimedOut, err)
	// Output:
	// "half\n" -1 true <nil>
}

// One text for a model, as a tool returns it.
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
