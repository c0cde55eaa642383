package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// machineMemory is the default of the protocol, in MiB.
const machineMemory = 64

// startMachine starts `sandbar stdio` in the mode v86, with the image that "make tools" builds. The
// first start boots it.
func startMachine(l *lab) (*stdioSandbox, error) {
	cache, err := testenv.V86Cache()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("drivers: {v86: {cache: "+strconv.Quote(cache)+"}}\n"), 0o600); err != nil {
		return nil, err
	}
	s, err := startStdio(l.sandbar, "--config", config, "--mode", "v86", "--disk-image", testenv.V86Image(), "--memory-limit", strconv.Itoa(machineMemory))
	if err == nil {
		err = s.shell("echo up", "up\n") // after it has read its configuration
	}
	return s, err
}

// withMachine measures a running machine.
func withMachine(f func(*stdioSandbox) (measured, error)) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		s, err := startMachine(l)
		if err != nil {
			return measured{}, err
		}
		m, err := f(s)
		return m, errors.Join(err, s.stop())
	}
}

func machineStart(l *lab) (measured, error) {
	var took times
	for i := range 11 {
		began := time.Now()
		s, err := startMachine(l)
		if err != nil {
			return measured{}, err
		}
		if i > 0 { // the first may boot
			took = append(took, time.Since(began))
		}
		if err := s.stop(); err != nil {
			return measured{}, err
		}
	}
	sortTimes(took)
	return measured{value: took.String(), kept: took.quantile(0.5) <= 1500*time.Millisecond}, nil
}

func machineEcho(s *stdioSandbox) (measured, error) {
	ours, theirs, err := interleave(30, func() error { return s.shell("echo hi", "hi\n") }, command("/bin/sh", "-c", "echo hi >&2"))
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "bare /bin/sh: " + theirs.String(), kept: ours.quantile(0.5) <= 300*time.Millisecond}, nil
}

func machineReset(s *stdioSandbox) (measured, error) {
	var took times
	for range 15 {
		if err := s.shell("dd if=/dev/zero of=/tmp/big bs=64k count=100 2>/dev/null; echo full", "full\n"); err != nil {
			return measured{}, err
		}
		began := time.Now()
		if a, err := s.ask(map[string]any{"type": "reset"}); err != nil || !a.Success {
			return measured{}, fmt.Errorf("reset: %+v, %w", a, err)
		}
		took = append(took, time.Since(began))
	}
	sortTimes(took)
	return measured{value: took.String(), kept: took.quantile(0.5) <= 700*time.Millisecond}, nil
}

// machineIdle measures the processor time of an idle machine.
func machineIdle(s *stdioSandbox) (measured, error) {
	const rest = 10 * time.Second
	pids, err := s.processes()
	if err != nil {
		return measured{}, err
	}
	before := cpuTime(pids)
	time.Sleep(rest)
	share := 100 * float64(cpuTime(pids)-before) / float64(rest)
	return measured{value: fmt.Sprintf("%.1f %% of a processor, over %v", share, rest), kept: share <= 1}, s.shell("echo still", "still\n")
}

// machineSize measures the memory of a machine after some work.
func machineSize(s *stdioSandbox) (measured, error) {
	if err := s.shell("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; seq 1 20000 | sort | md5sum >/tmp/x; echo $i", "3000\n"); err != nil {
		return measured{}, err
	}
	time.Sleep(5 * time.Second) // until the machine is idle
	pids, err := s.processes()
	if err != nil {
		return measured{}, err
	}
	var now, peak int64
	for _, pid := range pids {
		status := fmt.Sprintf("/proc/%d/status", pid)
		now += field(status, "VmRSS:")
		peak += field(status, "VmHWM:")
	}
	const most = (machineMemory + 300) << 20
	return measured{value: fmt.Sprintf("%.0f MiB at rest, %.0f at most, for a machine with %d", mib(now), mib(peak), machineMemory), kept: now <= most}, nil
}

// processes are the process of the command and that of the machine.
func (s *stdioSandbox) processes() ([]int, error) {
	children, err := childrenOf(s.cmd.Process.Pid)
	return append(children, s.cmd.Process.Pid), err
}

// cpuTime is the processor time of processes together. The kernel counts it in hundredths of a
// second.
func cpuTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended; the next request will fail
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 12 {
			for _, ticks := range f[11:13] {
				n, _ := strconv.ParseInt(ticks, 10, 64)
				sum += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return sum
}
