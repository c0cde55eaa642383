package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// runHere runs the tests as the user that runs this program.
func runHere(ctx context.Context, o options, root string, golden []allowance, w io.Writer) (counts, error) {
	module, err := goOutput(ctx, root, "list", "-m")
	if err != nil {
		return counts{}, err
	}
	skips, err := os.MkdirTemp("", "sandbar-skips-")
	if err != nil {
		return counts{}, err
	}
	defer os.RemoveAll(skips)

	test := func(ctx context.Context, o options, t *tally, packages ...string) error {
		args := []string{"test", "-json", "-count=1", "-timeout", o.timeout.String()}
		if o.race {
			args = append(args, "-race")
		}
		if o.only != "" {
			args = append(args, "-run", o.only)
		}
		cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
		cmd.Dir = root
		cmd.Env = append(goEnv(o), "TESTENV_SKIPS="+skips, "TESTENV_CACHE="+testenv.Cache())
		return t.follow(ctx, cmd)
	}
	t := newTally(w, strings.TrimSpace(module))
	if err := test(ctx, o, t, o.patterns...); err != nil {
		return t.now, err
	}
	err = t.again(ctx, o, func(ctx context.Context, o options, t *tally, pkg string) error { return test(ctx, o, t, pkg) })
	if err != nil {
		return t.now, err
	}
	var unmet bytes.Buffer
	printUnmet(&unmet, []string{"all"})
	return t.conclude(skips, golden, readFacts(), parseUnmet(unmet.String()))
}

// follow runs a command that prints events and reads them. A command that
// fails without an event that says so is a problem of its own.
func (t *tally) follow(ctx context.Context, cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	killGroup(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	before := t.now.failed
	readErr := t.read(out)
	runErr := cmd.Wait()
	t.out.Write(stderr.Bytes())
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	if readErr != nil {
		return readErr
	}
	if runErr != nil && t.now.failed == before {
		t.problem("%s: %v", strings.Join(cmd.Args, " "), runErr)
	}
	return nil
}

// conclude prints what is left to say when all tests have run.
func (t *tally) conclude(skips string, golden []allowance, f facts, unmet map[string]string) (counts, error) {
	recorded, err := testenv.ReadSkips(skips)
	if err != nil {
		return t.now, err
	}
	t.printSlowest(10)
	t.judgeSkips(recorded, golden, f, unmet)
	t.printUnsteady()
	if len(t.problems) > 0 {
		fmt.Fprintln(t.out, "\nfailures that are no test's own:")
		for _, p := range t.problems {
			fmt.Fprintf(t.out, "  %s\n", p)
		}
	}
	return t.now, nil
}

// goEnv is the environment of go commands. Only the race detector needs cgo.
func goEnv(o options) []string {
	cgo := "CGO_ENABLED=0"
	if o.race {
		cgo = "CGO_ENABLED=1"
	}
	return append(os.Environ(), cgo)
}

// goOutput runs a go command in dir and returns what it printed.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// missingTools is what scripts/tools.sh could not get, by requirement.
func missingTools() map[string]string {
	b, err := os.ReadFile(filepath.Join(testenv.Cache(), "tools.missing"))
	if err != nil {
		return nil // the script has not run, so nothing is excused
	}
	return parseUnmet(string(b))
}
