package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/driver/oci"
)

// runcRun and runscRun compare the whole life of a sandbox with that of a container that the same
// runtime makes directly.
func runcRun(*lab) (measured, error) { return container(oci.Name, "runc", 40) }

func runscRun(*lab) (measured, error) {
	path, err := runsc()
	if err != nil {
		return measured{}, err
	}
	return container(oci.NameGVisor, path, 20, "--network=none")
}

// runsc is the path where `make tools` builds runsc.
func runsc() (string, error) {
	path, err := filepath.Abs(".cache/bin/runsc")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("runsc is not there; `make tools` builds it: %w", err)
	}
	return path, nil
}

// runscReady measures an execution in a gVisor sandbox with a prestarted Python.
func runscReady(*lab) (measured, error) {
	path, err := runsc()
	if err != nil {
		return measured{}, err
	}
	d, err := oci.New(driver.Host{Options: map[string]string{"runtime": path}}, oci.NameGVisor, embedded.Binary())
	if err != nil {
		return measured{}, err
	}
	return readyPython(d, 15*time.Millisecond)
}

// container measures create, print and destroy with a driver, and with `RUNTIME run`.
func container(name, runtime string, n int, flags ...string) (measured, error) {
	d, err := oci.New(driver.Host{Options: map[string]string{"runtime": runtime}}, name, embedded.Binary())
	if err != nil {
		return measured{}, err
	}
	e, err := engine.New(engine.Config{Driver: d, Grace: time.Second, AllowDegraded: true})
	if err != nil {
		return measured{}, errors.Join(err, d.Close())
	}
	defer closeEngine(e)
	isolated := func() error {
		r, err := e.Run(context.Background(), sandbar.Job{Language: "python", Code: hello}, engine.Discard)
		return exited(r, err)
	}
	dir, err := os.MkdirTemp("", "bench-oci-")
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(dir)
	byHand, err := bundle(dir, runtime, flags)
	if err != nil {
		return measured{}, err
	}
	ours, theirs, err := interleave(n, isolated, byHand)
	if err != nil {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("%v; %.2f × by hand", ours, ratio(ours, theirs)),
		baseline: filepath.Base(runtime) + " run: " + theirs.String(),
		kept:     ratio(ours, theirs) <= 1.1,
	}, nil
}

// bundle makes a bundle like `runc spec`, with this host's programs. It returns a function that
// runs it to its end.
func bundle(dir, runtime string, flags []string) (func() error, error) {
	if err := os.MkdirAll(filepath.Join(dir, "rootfs", "usr"), 0o755); err != nil {
		return nil, err
	}
	for _, l := range []string{"/bin", "/lib", "/lib64", "/sbin"} {
		if to, err := os.Readlink(l); err == nil {
			if err := os.Symlink(to, filepath.Join(dir, "rootfs", l)); err != nil {
				return nil, err
			}
		}
	}
	make := exec.Command(runtime, "spec")
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s spec: %w: %s", runtime, err, out)
	}
	if err := adjust(filepath.Join(dir, "config.json")); err != nil {
		return nil, err
	}
	var last atomic.Int64
	return func() error {
		id := "bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(last.Add(1), 10)
		args := append([]string{"--root", filepath.Join(dir, "state")}, flags...)
		cmd := exec.Command(runtime, append(args, "run", "--bundle", dir, id)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s run: %w: %s", runtime, err, out)
		}
		return nil
	}, nil
}

// adjust makes a configuration print with this host's Python.
func adjust(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c map[string]any
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	process, _ := c["process"].(map[string]any)
	mounts, _ := c["mounts"].([]any)
	if process == nil || mounts == nil {
		return errors.New("the configuration has no process or no mounts")
	}
	process["terminal"], process["args"] = false, []string{python, "-c", hello}
	c["mounts"] = append(mounts, map[string]any{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}})
	if b, err = json.Marshal(c); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
