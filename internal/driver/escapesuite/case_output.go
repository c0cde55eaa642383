package escapesuite

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// outputCases are cases 37 to 40: the limits of output and time, which the engine enforces.
func outputCases() []Case {
	return []Case{
		daemonCase("37-flood", "endless output", flood),
		daemonCase("38-one-line", "megabytes without a newline, and invalid UTF-8", oneLine),
		daemonCase("39-last-moment", "a program that ends at its time limit", lastMoment),
		daemonCase("40-limits", "invalid limits", oddLimits),
	}
}

// maxGrowth is the maximum growth of the daemon's memory during an attack, in bytes.
const maxGrowth = 64 << 20

func flood(ctx context.Context, _ *Suite, d *daemon) error {
	before := d.memory()
	o, err := d.shell(ctx, execution{Code: "exec yes", Output: outputCap, Timeout: 60 * time.Second})
	switch {
	case err != nil:
		return err
	case o.code != "OUTPUT_LIMIT":
		return escaped("the program was not stopped at its limit: status %q, error %q", o.status, o.code)
	case o.output.Len() != outputCap:
		return escaped("the client received %d bytes; the limit is %d", o.output.Len(), outputCap)
	case d.memory()-before > maxGrowth:
		return escaped("the daemon grew by %d MiB", (d.memory()-before)>>20)
	}
	return nil
}

func oneLine(ctx context.Context, _ *Suite, d *daemon) error {
	const size = 4 << 20
	o, err := d.shell(ctx, execution{Code: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf '\\377\\000\\342\\202'", size), Output: outputCap})
	switch {
	case err != nil:
		return err
	case strings.Count(o.output.String(), "x") != size || !strings.Contains(o.output.String(), "\x00"):
		return escaped("the client received %d of %d bytes", o.output.Len(), size)
	case o.exit == nil || *o.exit != 0:
		return escaped("unexpected end of the program: %s %s", o.status, o.code)
	}
	return nil
}

func lastMoment(ctx context.Context, _ *Suite, d *daemon) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	ends := map[string]int{}
	const count = 8
	for i := range count {
		if err := c.send(ctx, execution{ID: fmt.Sprint("e", i), Language: "shell", Code: "sleep 0.3", Timeout: 300 * time.Millisecond}.text()); err != nil {
			return err
		}
	}
	// After all executions have ended it sends a ping. The pong comes after all their messages.
	for over := 0; ; {
		m, err := c.next(ctx)
		if err != nil {
			return err
		}
		switch m.Type {
		case "result", "error":
			ends[m.ID]++
			if over++; over == count {
				if err := c.send(ctx, `{"v":1,"type":"ping","ts":"2026-01-01T00:00:00.000Z"}`); err != nil {
					return err
				}
			}
		case "pong":
			for id, n := range ends {
				if n != 1 {
					return escaped("execution %s had %d results", id, n)
				}
			}
			return nil
		}
	}
}

func oddLimits(ctx context.Context, _ *Suite, d *daemon) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	for _, limits := range []string{
		`{"timeout_ms":0,"memory_mb":64}`, `{"timeout_ms":-1,"memory_mb":64}`, `{"timeout_ms":1e308,"memory_mb":64}`, `{"timeout_ms":9223372036854775807,"memory_mb":64}`,
		`{"timeout_ms":"1","memory_mb":64}`, `{"timeout_ms":0.5,"memory_mb":64}`, `{"timeout_ms":1000,"memory_mb":0}`, `{"timeout_ms":1000,"memory_mb":-5}`,
		`{"timeout_ms":1000,"memory_mb":18446744073709551616}`, `{"timeout_ms":1000,"memory_mb":64,"max_output_bytes":-1}`,
		`{"timeout_ms":1000,"memory_mb":64,"cpu_shares":-1}`, `{"timeout_ms":null,"memory_mb":null}`, `[]`, `null`,
	} {
		text := `{"v":1,"type":"execute","id":"e","ts":"2026-01-01T00:00:00.000Z","language":"shell","code":"echo ran","limits":` + limits + `}`
		if err := c.send(ctx, text); err != nil {
			return err
		}
		o := &outcome{}
		for {
			m, err := c.next(ctx)
			if err != nil {
				return fmt.Errorf("limits %s: %w", limits, err)
			}
			if o.add(m) {
				break
			}
		}
		if o.code != "INVALID_REQUEST" || o.output.Len() > 0 {
			return escaped("the daemon accepted the limits %s: status %q, error %q", limits, o.status, o.code)
		}
	}
	return nil
}
