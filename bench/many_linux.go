package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What one idle sandbox needs of the host at most: descriptors of the daemon, and processes with
// their threads. They bound the number of sandboxes in manySandboxes.
const (
	sandboxDescriptors = 12
	sandboxTasks       = 30
)

// manySandboxes measures what one of 5,000 idle sandboxes costs the host, the kernel's memory
// included, and how long their list takes. There are fewer sandboxes if the host's limits of
// descriptors or processes are lower.
func manySandboxes(l *lab) (measured, error) {
	n, err := mostSandboxes(5000)
	if err != nil {
		return measured{}, err
	}
	d, err := startDaemon(l.sandbar, "SANDBAR_TEMPLATES=off", "SANDBAR_LOG_LEVEL=error", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_MAX_SANDBOXES="+strconv.Itoa(n))
	if err != nil {
		return measured{}, err
	}
	defer d.stop()
	const settle = 10 * time.Second // until the kernel has done what the creations have left
	if err := createMany(d, 8); err != nil {
		return measured{}, err
	}
	time.Sleep(settle)
	before := availableMemory()
	began := time.Now()
	if err := createMany(d, n-8); err != nil {
		return measured{}, err
	}
	took := time.Since(began)
	time.Sleep(settle)
	each := (before - availableMemory()) / int64(n-8)
	list, err := sample(20, func() error {
		resp, err := d.ask(http.MethodGet, "/v1/sandboxes", http.StatusOK)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	if err != nil {
		return measured{}, err
	}
	return measured{
		value: fmt.Sprintf("%.2f MiB each of %d, created in %.1f s; their list: %v", mib(each), n, took.Seconds(), list),
		kept:  each <= 12<<20/10 && list.quantile(0.5) <= 50*time.Millisecond,
	}, nil
}

// mostSandboxes returns how many sandboxes the host's limits allow, at most n.
func mostSandboxes(n int) (int, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0, err
	}
	tasks, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return min(n, int(files.Max/sandboxDescriptors), tasks/sandboxTasks) / 8 * 8, err
}

func availableMemory() int64 { return field("/proc/meminfo", "MemAvailable:") }
