package main

import (
	"fmt"
	"os"
	"time"
)

// readyPythonSize measures ready copies of a template among others: what they
// share with each other and the template is in memory once.
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
	time.Sleep(2 * time.Second) // by now they have settled
	n, copies, agents := d.waiting()
	if n != many {
		return measured{}, fmt.Errorf("found %d interpreters in %d ready sandboxes", n, many)
	}
	return measured{
		value: fmt.Sprintf("%.2f MiB each of %d: %.2f MiB the interpreter, %.2f MiB the agent", mib(copies+agents), n, mib(copies), mib(agents)),
		kept:  copies+agents <= 3<<20,
	}, nil
}

// waiting counts the sandboxes in which an interpreter waits, and tells what it and
// the agent beside it hold, on average. A sandbox is known by its PID namespace.
// Outside of all are the template and helpers of copies, which have a copy's memory
// and would count it twice; the template's own sandbox has no interpreter.
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
