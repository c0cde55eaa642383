package client_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// Make a sandbox in a daemon, upload a file, run a command and stop the sandbox.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// A program uses the address of "sandbar serve" instead.
	url, stop, err := client.Serve(dir, "unix:"+dir+"/socket", "token-of-the-daemon")
	if err != nil {
		panic(err)
	}
	defer stop()

	ctx := context.Background()
	c, err := client.New(url, "token-of-the-daemon")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	sandbox, err := c.Create(ctx, wire.Create{Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	id := string(sandbox.ID)
	text := "hello\n"
	if err := c.Upload(ctx, id, "greeting", strings.NewReader(text), int64(len(text)), 0o644, false); err != nil {
		fmt.Println(err)
		return
	}
	result, err := c.Exec(ctx, id, wire.Exec{Args: []string{"cat", "greeting"}}, client.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Outcome, *result.ExitCode)
	fmt.Println(c.Stop(ctx, "example"))
	// Output:
	// hello
	// exited 0
	// <nil>
}
