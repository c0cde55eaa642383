package native

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// BenchmarkWarm measures the time of Fork, the time from Eval to the result of a short program, and
// the private memory of a waiting fork.
func BenchmarkWarm(b *testing.B) {
	d := newDriver(b)
	tmpl, err := d.Prepare(b.Context(), pythonTemplate(d))
	if err != nil {
		b.Fatal(err)
	}
	defer tmpl.Close()
	var forks, evals []time.Duration
	var pss int
	for b.Loop() {
		begun := time.Now()
		box, err := tmpl.Fork(b.Context(), sandbar.NewID())
		if err != nil {
			b.Fatal(err)
		}
		forks = append(forks, time.Since(begun))
		pss = max(pss, waitingPSS(b, d))
		e, _ := driver.As[driver.Evaluator](box)
		var out bytes.Buffer
		begun = time.Now()
		p, err := e.Eval(b.Context(), driver.Evaluation{Path: "main.py", Code: "print('hello world')\n"}, driver.Stdio{Stdout: &out, Stderr: &out})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil || out.String() != "hello world\n" {
			b.Fatalf("%q, %v", out.String(), err)
		}
		evals = append(evals, time.Since(begun))
		if err := box.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(forks)
	slices.Sort(evals)
	b.ReportMetric(float64(forks[len(forks)/2].Microseconds()), "fork-p50-µs")
	b.ReportMetric(float64(evals[len(evals)/2].Microseconds()), "eval-p50-µs")
	b.ReportMetric(float64(evals[len(evals)*9/10].Microseconds()), "eval-p90-µs")
	b.ReportMetric(float64(pss), "pss-KiB")
}

// waitingPSS returns the private dirty memory of the waiting copy, in KiB.
func waitingPSS(b *testing.B, d *Driver) (kib int) {
	for _, pid := range descendants(b, d) {
		dir := "/proc/" + strconv.Itoa(pid)
		status, _ := os.ReadFile(dir + "/status")
		if !bytes.Contains(status, []byte("Name:\tpython3\n")) || !bytes.Contains(status, []byte("NoNewPrivs:\t1")) || strings.Count(string(status), "Seccomp_filters:\t3") == 0 {
			continue
		}
		text, _ := os.ReadFile(dir + "/smaps_rollup")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Private_Dirty:" {
				kib, _ = strconv.Atoi(f[1])
			}
		}
	}
	return kib
}
