package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
)

// code is the program: it prints its user, visible processes, and denied accesses.
const code = `echo "in a sandbox: user $(id -u), process $$, $(ls /proc | grep -c '^[0-9]') processes in sight"
cat /etc/shadow`

func main() {
	d, err := native.New(driver.Host{}, embedded.Binary())
	if err != nil {
		fmt.Println("the driver native does not work on this host:", err)
		return
	}
	if err := show(d); err != nil {
		fmt.Fprintln(os.Stderr, "first:", err)
		os.Exit(1)
	}
}

func show(d driver.Driver) error {
	e, err := engine.New(engine.Config{Driver: d})
	if err != nil {
		return errors.Join(err, d.(driver.Closer).Close())
	}
	fmt.Printf("== the first program, in a sandbox of namespaces\n%s\n", code)
	// The host may not enforce a memory limit for this user; the daemon's demonstration reports it.
	job := sandbar.Job{Spec: sandbar.Spec{AllowDegraded: true}, Language: "shell", Code: code}
	r, err := e.Run(context.Background(), job, output{})
	if err == nil {
		fmt.Printf("  → %s, exit %d, %d ms\n", r.Outcome, r.ExitCode, r.Duration.Milliseconds())
	}
	return errors.Join(err, e.Shutdown(context.Background()))
}

// output prints the program's output as it is written.
type output struct{}

func (output) Started() {}

// Output implements engine.Sink.
func (output) Output(c sandbar.Chunk) error {
	_, err := fmt.Printf("  %s", c.Data)
	return err
}
