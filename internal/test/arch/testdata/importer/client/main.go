// A program of another module: a client of a daemon.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

func run(ctx context.Context) error {
	c, err := client.New("http://127.0.0.1:8080", os.Getenv("SANDBAR_TOKEN"))
	if err != nil {
		return err
	}
	defer c.Close()
	var made wire.Sandbox
	made, err = c.Create(ctx, wire.Create{Limits: &wire.Limits{Memory: 256 << 20, Timeout: wire.Unlimited}})
	if err != nil {
		return err
	}
	id := string(made.ID)
	defer c.Stop(ctx, id)
	if err := c.Upload(ctx, id, "main.py", strings.NewReader("print(1)"), 8, 0o644, true); err != nil {
		return err
	}
	result, err := c.Exec(ctx, id, wire.Exec{Args: []string{"python3", "main.py"}}, client.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Println(result.Outcome, sandbar.CodeOf(err))
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
}
