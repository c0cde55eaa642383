package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/driver/docker"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// dockerCommand is Debian's Docker command.
const dockerCommand = "/usr/bin/docker"

// dockerPython compares an execution with the driver docker with docker run on a separate Docker
// daemon.
func dockerPython(l *lab) (measured, error) {
	return withDocker(l, func(daemon *dockerd.Engine, d driver.Driver) (measured, error) {
		e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true})
		if err != nil {
			return measured{}, errors.Join(err, closeDriver(d))
		}
		defer closeEngine(e)
		isolated := func() error {
			r, err := e.Run(context.Background(), sandbar.Job{Language: "python", Code: hello}, engine.Discard)
			return exited(r, err)
		}
		plain := command(dockerCommand, "-H", daemon.Host(), "run", "--rm", "--network", "none", dockerd.Image, "python3", "-c", hello)
		ours, theirs, err := interleave(20, isolated, plain)
		if err != nil {
			return measured{}, err
		}
		return measured{
			value:    fmt.Sprintf("%v; %.2f × docker run", ours, ratio(ours, theirs)),
			baseline: "docker run --rm --network none: " + theirs.String(),
			kept:     ratio(ours, theirs) <= 1.1,
		}, nil
	})
}

// dockerReady measures an execution in a container with a prestarted Python.
func dockerReady(l *lab) (measured, error) {
	return withDocker(l, func(_ *dockerd.Engine, d driver.Driver) (measured, error) {
		return readyPython(d, 10*time.Millisecond)
	})
}

// withDocker calls measure with a separate Docker daemon and a driver for it.
func withDocker(l *lab, measure func(*dockerd.Engine, driver.Driver) (measured, error)) (measured, error) {
	if _, err := os.Stat(l.image); err != nil {
		return measured{}, fmt.Errorf("there is no image (make tools builds it): %w", err)
	}
	ctx := context.Background()
	daemon, err := dockerd.Start(ctx)
	if err != nil {
		return measured{}, fmt.Errorf("a Docker Engine (make tools installs it): %w", err)
	}
	defer daemon.Stop()
	if err := daemon.Import(ctx, l.image, dockerd.Image); err != nil {
		return measured{}, err
	}
	d, err := docker.New(driver.Host{Options: map[string]string{"host": daemon.Host(), "image": dockerd.Image}}, embedded.Binary())
	if err != nil {
		return measured{}, err
	}
	return measure(daemon, d)
}
