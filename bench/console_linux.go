package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// withConsole calls work with a new daemon and a tab of a new browser that is logged in. profile is
// the directory of the browser, which its processes have in their arguments.
func withConsole(l *lab, work func(tab context.Context, d *daemon, profile string) (measured, error), env ...string) (measured, error) {
	d, err := startDaemon(l.sandbar, append([]string{"SANDBAR_LOG_LEVEL=error"}, env...)...)
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	profile, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(profile)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(profile), chromedp.Env("HOME="+profile))
	ctx, end := context.WithTimeout(context.Background(), 5*time.Minute)
	defer end()
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	defer end()
	tab, _ := chromedp.NewContext(allocator)
	defer chromedp.Cancel(tab)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1280, 800), chromedp.Navigate("http://"+d.addr+"/")); err != nil {
		return measured{}, fmt.Errorf("the browser: %w", err)
	}
	login := `fetch('/console/login', {method: 'POST', headers: {'Sandbar-Console': '1'}, body: JSON.stringify({token: "` + d.token + `"})}).then(r => r.status)`
	if status, err := chromedp.Run(tab, chromedp.Evaluate[int](login, chromedp.EvalAwaitPromise)); err != nil || status != http.StatusNoContent {
		return measured{}, fmt.Errorf("the login answers %d, %w", status, err)
	}
	return work(tab, d, profile)
}

// ready loads the page and returns the time from its request to the list, as the browser measures
// it.
func ready(tab context.Context) (time.Duration, error) {
	if err := chromedp.Do(tab, chromedp.Reload()); err != nil {
		return 0, err
	}
	ms, err := chromedp.Run(tab, chromedp.Poll[float64](`performance.getEntriesByName('ready')[0]?.startTime`, chromedp.WithPollingInterval(5*time.Millisecond)))
	return time.Duration(ms * float64(time.Millisecond)), err
}

func consoleReady(l *lab) (measured, error) {
	return withConsole(l, func(tab context.Context, _ *daemon, _ string) (measured, error) {
		var all []time.Duration
		for range 15 {
			took, err := ready(tab)
			if err != nil {
				return measured{}, err
			}
			all = append(all, took)
		}
		slices.Sort(all)
		p50 := all[len(all)/2]
		return measured{value: fmt.Sprintf("%.0f ms, at most %.0f ms", ms(p50), ms(all[len(all)-1])), kept: p50 <= 300*time.Millisecond}, nil
	})
}

// consoleSize measures the built page, which bin/sandbar embeds.
func consoleSize(*lab) (measured, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return measured{}, err
	}
	total, first := int64(0), int64(0)
	dist := filepath.Join(root, "internal", "server", "console", "dist")
	index, err := os.ReadFile(filepath.Join(dist, "index.html"))
	if err != nil {
		return measured{}, err
	}
	err = filepath.WalkDir(dist, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		total += info.Size()
		if bytes.Contains(index, []byte("/"+strings.TrimSuffix(d.Name(), ".gz")+`"`)) {
			first += info.Size()
		}
		return nil
	})
	return measured{value: fmt.Sprintf("%d KiB, of which the first page loads %d KiB", total>>10, first>>10), kept: total <= 400<<10}, err
}

func consoleList(l *lab) (measured, error) {
	const sandboxes, measuring = 1000, 30 * time.Second
	return withConsole(l, func(tab context.Context, d *daemon, profile string) (measured, error) {
		if err := createMany(d, sandboxes); err != nil {
			return measured{}, err
		}
		took, err := ready(tab)
		if err != nil {
			return measured{}, err
		}
		time.Sleep(5 * time.Second) // the page measures the usage of the rows in view
		before, err := processorTime(d, profile)
		if err != nil {
			return measured{}, err
		}
		began := time.Now()
		for time.Since(began) < measuring {
			id, err := d.create()
			if err != nil {
				return measured{}, err
			}
			time.Sleep(500 * time.Millisecond)
			if err := d.remove(id); err != nil {
				return measured{}, err
			}
			time.Sleep(500 * time.Millisecond)
		}
		after, err := processorTime(d, profile)
		if err != nil {
			return measured{}, err
		}
		share := float64(after-before) / float64(time.Since(began))
		return measured{value: fmt.Sprintf("%.1f %% of a processor; the page is ready in %.0f ms", 100*share, ms(took)), kept: share <= 0.05}, nil
	}, "SANDBAR_DRIVER=local", "SANDBAR_TEMPLATES=off", "SANDBAR_MAX_SANDBOXES=1100", "SANDBAR_ALLOW_DEGRADED=true")
}

// createMany creates sandboxes, eight at a time.
func createMany(d *daemon, n int) error {
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for range n / len(errs) {
				if _, err := d.create(); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// create creates a sandbox and returns its id.
func (d *daemon) create() (string, error) {
	resp, err := d.ask(http.MethodPost, "/v1/sandboxes", http.StatusCreated)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return strings.TrimPrefix(resp.Header.Get("Location"), "/v1/sandboxes/"), nil
}

func (d *daemon) remove(id string) error {
	resp, err := d.ask(http.MethodDelete, "/v1/sandboxes/"+filepath.Base(id), http.StatusNoContent)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func (d *daemon) ask(method, path string, want int) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://"+d.addr+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != want {
		resp.Body.Close()
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp, err
}

// clockTick is the unit of times in /proc/PID/stat (proc(5)).
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time of a daemon and of the browser with a profile.
func processorTime(d *daemon, profile string) (total time.Duration, err error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		line, err := os.ReadFile(filepath.Join(name, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(profile)) && filepath.Base(name) != strconv.Itoa(d.cmd.Process.Pid) {
			continue // another process, or it has ended
		}
		stat, err := os.ReadFile(filepath.Join(name, "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, i := range []int{11, 12} { // utime and stime
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(n) * clockTick
		}
	}
	return total, nil
}
