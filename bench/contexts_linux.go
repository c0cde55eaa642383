package main

import (
	"fmt"
	"time"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// contextCells measures `1+1` in a Python context over the control API.
func contextCells(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	k, err := x.CreateContext(x.ctx, x.id, wire.CreateContext{})
	if err != nil {
		return measured{}, err
	}
	var text string
	run := func(code string) error {
		text = ""
		end, err := x.RunCell(x.ctx, x.id, k.ID, wire.Cell{Code: code}, func(e wire.Event) error {
			text += e.Text
			return nil
		})
		if err == nil && end.Failed {
			err = fmt.Errorf("the cell %q failed", code)
		}
		return err
	}
	const memory = `import os; int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")`
	resident := func() (n int64, err error) {
		if err = run(memory); err == nil {
			_, err = fmt.Sscan(text, &n)
		}
		return n, err
	}
	for range 50 { // warms up
		if err := run("1+1"); err != nil {
			return measured{}, err
		}
	}
	before, err := resident()
	if err != nil {
		return measured{}, err
	}
	daemon := field(x.daemon.status(), "VmRSS:")
	ours, bare, err := interleave(1000, func() error { return run("1+1") }, command("/bin/true"))
	if err != nil {
		return measured{}, err
	}
	after, err := resident()
	if err != nil {
		return measured{}, err
	}
	grown, daemonGrown := after-before, field(x.daemon.status(), "VmRSS:")-daemon
	return measured{value: fmt.Sprintf("%s; after 1,000 cells the interpreter has grown by %d KiB", ours, grown>>10),
		baseline: fmt.Sprintf("bare /bin/true: %s; the daemon has grown by %d KiB", bare, daemonGrown>>10),
		kept:     ours.quantile(0.5) <= 3*time.Millisecond && grown < 2<<20}, nil
}
