package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// readyPythonSize measures ready forks of a template among others. The memory that they share with
// each other and the template counts once.
func readyPythonSize(l *lab) (measured, error) {
	const many = 30
	d, err := startDaemon(l.sandbar, "SANDBAR_LOG_LEVEL=error",
		fmt.Sprintf("SANDBAR_TEMPLATES=[{language: python, min: %d, max: %d}]", many, many))
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	if err := d.awaitReady("python", many); err != nil {
		return measured{}, err
	}
	time.Sleep(2 * time.Second) // until they have settled
	n, copies, agents := d.waiting()
	if n != many {
		return measured{}, fmt.Errorf("found %d interpreters in %d ready sandboxes", n, many)
	}
	return measured{
		value: fmt.Sprintf("%.2f MiB each of %d: %.2f MiB the interpreter, %.2f MiB the agent", mib(copies+agents), n, mib(copies), mib(agents)),
		kept:  copies+agents <= 3<<20,
	}, nil
}

// waiting counts the sandboxes with a waiting interpreter, and returns the average memory of the
// interpreter and its agent. A sandbox is identified by its PID namespace. Processes outside of all
// these namespaces are the template and the helpers of forks. A helper has a fork's memory and
// would count it twice; the template's own sandbox has no interpreter.
func (d *daemon) waiting() (n int, copies, agents int64) {
	own, _ := os.Readlink("/proc/self/ns/pid")
	interpreter, rest := map[string]int64{}, map[string]int64{}
	for pid, p := range family(d.cmd.Process.Pid) {
		sandbox, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err != nil || sandbox == own {
			continue
		}
		of := rest
		if p.name == "python3" {
			of = interpreter
		}
		of[sandbox] += field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	n = len(interpreter)
	for sandbox, size := range interpreter {
		copies += size / int64(n)
		agents += rest[sandbox] / int64(n)
	}
	return n, copies, agents
}

// warmImports runs two programs in ready forks of one template that has imported the module of the
// second, and returns the difference.
func warmImports(l *lab) (measured, error) {
	const importing = "import numpy, pandas\n" + hello
	dir, err := packages()
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(dir)
	return connected(l.sandbar, func(ctx context.Context, d *daemon, c *line) (measured, error) {
		rest := func() error { return d.awaitRest("python") }
		if err := rest(); err != nil {
			return measured{}, err
		}
		warm := func(code string) func() error { return func() error { return c.run(ctx, "python", code) } }
		bare := func(code string) func() error { return command("env", "PYTHONPATH="+dir, python, "-c", code) }
		all, err := inTurn(40, rest, warm(hello), warm(importing), bare(hello), bare(importing))
		if err != nil {
			return measured{}, err
		}
		missed, err := d.metric(`sandbar_template_misses_total{template="python"}`)
		adds := func(to, with times) time.Duration { return with.quantile(0.5) - to.quantile(0.5) }
		return measured{
			value:    fmt.Sprintf("%+.2f ms; %v; %d cold", ms(adds(all[0], all[1])), all[1], int(missed)),
			baseline: fmt.Sprintf("bare python3 -c: %+.2f ms; %v", ms(adds(all[2], all[3])), all[3]),
			kept:     adds(all[0], all[1]) <= 5*time.Millisecond,
		}, err
	}, "SANDBAR_TEMPLATES=[{language: python, warm_imports: [numpy, pandas], min: 2}]",
		fmt.Sprintf("SANDBAR_DRIVERS={native: {paths: %q}}", dir),
		fmt.Sprintf(`SANDBAR_LANGUAGES=[{name: python, file: main.py, command: [python3, "{file}"], env: {PYTHONPATH: %q}}]`, dir))
}

// packages makes a directory with numpy and pandas for the host's Python, from the wheels that
// `make tools` fetches. It is in the cache, because sandboxes do not see directories of the host's
// /tmp.
func packages() (dir string, err error) {
	wheels := testenv.WheelsDir()
	pip, err := filepath.Glob(filepath.Join(wheels, "pip-*.whl"))
	if err != nil || len(pip) == 0 {
		return "", errors.New("the wheels of numpy and pandas are not there; `make tools` fetches them")
	}
	cache, err := filepath.EvalSymlinks(testenv.Cache())
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(cache, "bench-python-"); err != nil {
		return "", err
	}
	cmd := exec.Command(python, filepath.Join(pip[0], "pip"), "install", "--quiet", "--disable-pip-version-check",
		"--no-index", "--find-links", wheels, "--target", dir, "pandas")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("installing pandas: %w: %s", err, out)
	} else {
		err = os.Chmod(dir, 0o755) // the users of sandboxes must have access
	}
	if err != nil {
		os.RemoveAll(dir)
	}
	return dir, err
}
