package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/process/sigreset"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func main() {
	_ = sigreset.Reset() // tests of signals need the default dispositions
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	race     bool
	user     bool
	only     string
	check    string
	summary  string
	timeout  time.Duration
	lanes    int
	patterns []string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("runner", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: runner [flags] [packages]     (packages: default ./...)")
		fs.PrintDefaults()
	}
	fs.BoolVar(&o.race, "race", false, "run with the race detector; needs a C compiler")
	fs.BoolVar(&o.user, "user", false, "only the ordinary user's pass")
	fs.StringVar(&o.only, "run", "", "run only matching tests, as go test -run")
	fs.StringVar(&o.check, "check", "", "run no tests: print the unmet ones of these requirements (comma-separated, or \"all\")")
	fs.StringVar(&o.summary, "summary", "", "also write the last line to this `file`")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Minute, "timeout of the tests of one package")
	fs.IntVar(&o.lanes, "p", runtime.NumCPU()+1, "number of packages tested at once; tests also wait")
	err := fs.Parse(args)
	o.patterns = fs.Args()
	if len(o.patterns) == 0 {
		o.patterns = []string{"./..."}
	}
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return 2
	}
	if o.check != "" {
		return printUnmet(stdout, strings.Split(o.check, ","))
	}
	commonUmask()
	total, err := runPasses(ctx, o, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "runner: %v\n", err)
		total.failed++
	}
	if total.passed == 0 && total.failed == 0 {
		fmt.Fprintln(stderr, "runner: no test ran")
		total.failed++
	}
	fmt.Fprintf(stdout, "\n%s\n", total)
	if o.summary != "" {
		if err := os.WriteFile(o.summary, []byte(total.String()+"\n"), 0o644); err != nil {
			fmt.Fprintf(stderr, "runner: %v\n", err)
			return 1
		}
	}
	if total.failed > 0 {
		return 1
	}
	return 0
}

// counts are the numbers of the last line.
type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

// runPasses runs the passes that this user can run, concurrently.
func runPasses(ctx context.Context, o options, w io.Writer) (counts, error) {
	var total counts
	root, err := testenv.ModuleRoot()
	if err != nil {
		return total, err
	}
	golden, err := readGolden(filepath.Join(root, "internal", "test", "testenv", "skips.golden"))
	if err != nil {
		return total, err
	}
	dir, err := os.MkdirTemp("", "sandbar-tests-")
	if err != nil {
		return total, err
	}
	defer os.RemoveAll(dir)
	skips := filepath.Join(dir, "skips")
	if err := os.Mkdir(skips, 0o700); err != nil {
		return total, err
	}
	var passes []*pass
	var s *suite
	if os.Geteuid() != 0 { // on Windows Geteuid returns -1
		if s, err = newSuite(ctx, o, root, dir); err != nil {
			return total, err
		}
		passes = []*pass{s.here("this user", skips, golden, w)}
	} else {
		h, err := newHome(ctx, o.lanes)
		if err != nil {
			return total, err
		}
		defer h.remove()
		h.beside = !o.user
		if s, err = newSuite(ctx, o, root, h.path("test")); err != nil {
			return total, err
		}
		if err := h.fill(root); err != nil {
			return total, err
		}
		passes = []*pass{h.pass(s, golden, w)}
		if !o.user {
			passes = append([]*pass{s.here("root", skips, golden, w)}, passes...)
		}
	}
	err = s.run(ctx, passes)
	for _, p := range passes {
		total.add(p.tally.now)
		p.tally.printFailed(w)
	}
	return total, err
}

// printUnmet implements -check: it prints a line for each unmet requirement.
func printUnmet(w io.Writer, names []string) int {
	if len(names) == 1 && names[0] == "all" {
		names = nil
		for _, r := range testenv.All() {
			names = append(names, r.Name)
		}
	}
	for _, name := range names {
		r, ok := testenv.Find(name)
		if !ok {
			fmt.Fprintf(w, "%s\tunknown requirement\n", name)
		} else if err := r.Err(); err != nil {
			fmt.Fprintf(w, "%s\t%s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
	return 0
}
