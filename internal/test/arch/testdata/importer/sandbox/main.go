// A program of another module: code in, result out, by the operator's settings or over its own engine.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/sandbox"
)

func main() {
	self := sandbox.Self()
	ctx := context.Background()
	result, err := sandbox.Execute(ctx, sandbox.Options{Agent: self, Environ: os.Environ()}, sandbox.Request{Code: "print(1)"})
	fmt.Println(result.Stdout, err)

	factories, err := sandbox.Drivers(self)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := factories[0].New(driver.Host{RuntimeDir: os.TempDir()})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder, err := sandbox.NewRecorder(sandbox.RecorderOptions{Dir: "kept", Caps: func(string) driver.Caps { return d.Caps() }, Failed: func(error) {}})
	if err != nil {
		fmt.Println(err)
		return
	}
	config := engine.Config{Driver: d}
	recorder.Configure(&config)
	e, err := engine.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	box := sandbox.FromEngine(e, sandbox.Rules{Network: true})
	defer box.Close()
	result, err = box.Execute(ctx, sandbox.Request{Code: "print(2)"})
	fmt.Println(result.Compact(), err)
}
