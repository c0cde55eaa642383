package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// traceCost measures executions with traces, of all requests, beside a daemon without them. The
// collector is in this process.
func traceCost(l *lab) (measured, error) {
	var received atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
	}))
	defer collector.Close()
	return connected(l.sandbar, func(ctx context.Context, off *daemon, offLine *line) (measured, error) {
		return connected(l.sandbar, func(_ context.Context, on *daemon, onLine *line) (measured, error) {
			shell := greetings()["shell"].code
			offRun, err := off.commands(ctx)
			if err != nil {
				return measured{}, err
			}
			onRun, err := on.commands(ctx)
			if err != nil {
				return measured{}, err
			}
			offShell := func() error { return offLine.run(ctx, "shell", shell) }
			onShell := func() error { return onLine.run(ctx, "shell", shell) }
			// In both orders, and after the removal of the sandbox before.
			removed := func() error { time.Sleep(10 * time.Millisecond); return nil }
			before := [2]time.Duration{off.processor(), on.processor()}
			all, err := inTurn(400, removed, offShell, onShell, onShell, offShell, offRun, onRun, onRun, offRun)
			if err != nil {
				return measured{}, err
			}
			both := func(a, b int) times {
				t := append(all[a], all[b]...)
				sortTimes(t)
				return t
			}
			shells, tracedShells, runs, tracedRuns := both(0, 3), both(1, 2), both(4, 7), both(5, 6)
			fathom, run := ratio(tracedShells, shells), ratio(tracedRuns, runs)
			m := measured{value: fmt.Sprintf("a shell over Fathom: %.3f ×, %v; /run: %.3f ×, %v; processor time of the daemon: %.3f ×", fathom, tracedShells, run, tracedRuns,
				float64(on.processor()-before[1])/float64(off.processor()-before[0])),
				baseline: fmt.Sprintf("without traces: %v; %v", shells, runs), kept: fathom < 1.03 && run < 1.03}
			time.Sleep(3 * time.Second) // the last message
			if received.Load() == 0 {
				err = fmt.Errorf("the collector has received nothing")
			}
			return m, err
		}, "SANDBAR_TRACES_ENDPOINT="+collector.URL)
	})
}

// processor returns the processor time of the daemon itself, in clock ticks of 10 ms.
func (d *daemon) processor() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var sum time.Duration
	for _, i := range []int{11, 12} { // utime and stime (proc_pid_stat(5))
		n, _ := strconv.Atoi(fields[i])
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// commands returns a function that runs `true` in a new sandbox by its executor.
func (d *daemon) commands(ctx context.Context) (func() error, error) {
	post := func(path, body string, answer any) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.addr+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+d.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode > 299 {
			err = fmt.Errorf("%s: %s", resp.Status, said)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(said, answer)
	}
	var box struct{ ID string }
	if err := post("/v1/sandboxes", "{}", &box); err != nil {
		return nil, err
	}
	return func() error {
		var end struct{ Code int }
		err := post("/v1/sandboxes/"+box.ID+"/executor/run", `{"cmd":"true"}`, &end)
		if err == nil && end.Code != 0 {
			err = fmt.Errorf("exit code %d", end.Code)
		}
		return err
	}, nil
}
