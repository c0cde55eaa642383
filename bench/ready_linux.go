package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
)

// readyPython measures executions, one at a time, each in a ready sandbox of a driver. It closes
// the driver.
func readyPython(d driver.Driver, most time.Duration) (measured, error) {
	e, err := engine.New(engine.Config{Driver: d, Grace: time.Second, AllowDegraded: true, Templates: []engine.Template{{Language: "python", Min: 1}}})
	if err != nil {
		return measured{}, errors.Join(err, closeDriver(d))
	}
	defer closeEngine(e)
	var ours, bare times
	for range 30 {
		if err := awaitTemplate(e); err != nil {
			return measured{}, err
		}
		began := time.Now()
		r, err := e.Run(context.Background(), sandbar.Job{Language: "python", Code: hello}, engine.Discard)
		if err := exited(r, err); err != nil {
			return measured{}, err
		}
		ours = append(ours, time.Since(began))
		began = time.Now()
		if err := exec.Command(python, "-c", hello).Run(); err != nil {
			return measured{}, err
		}
		bare = append(bare, time.Since(began))
	}
	sortTimes(ours, bare)
	return measured{
		value:    fmt.Sprintf("%v; %.2f × bare; %d cold", ours, ratio(ours, bare), e.Templates()[0].Misses),
		baseline: "bare python3 -c: " + bare.String(),
		kept:     ours.quantile(0.5) <= most,
	}, nil
}

// awaitTemplate waits until a sandbox of the only template is ready.
func awaitTemplate(e *engine.Engine) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if e.Templates()[0].Ready > 0 {
			return nil
		}
	}
	return fmt.Errorf("no sandbox became ready within a minute: %+v", e.Templates()[0])
}

// closeDriver closes a driver that no engine uses.
func closeDriver(d driver.Driver) error {
	if c, ok := driver.As[driver.Closer](d); ok {
		return c.Close()
	}
	return nil
}
