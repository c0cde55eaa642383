package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// BenchmarkGroup measures the cost of control groups per sandbox: create with every limit, read
// once, remove.
func BenchmarkGroup(b *testing.B) {
	m := benchManager(b)
	for i := 0; b.Loop(); i++ {
		g, err := m.Create(fmt.Sprint(i), sandbar.Limits{Memory: 64 << 20, CPUs: 1, CPUShares: 1024, PIDs: 64})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.Stats(); err != nil {
			b.Fatal(err)
		}
		if err := g.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart compares starting a program in a group with starting it outside of groups.
func BenchmarkStart(b *testing.B) {
	m := benchManager(b)
	g, err := m.Create("start", sandbar.Limits{Memory: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Destroy(b.Context())
	run := func(b *testing.B, start func(*exec.Cmd) error) {
		for b.Loop() {
			cmd := exec.Command("/bin/true")
			cmd.SysProcAttr = &syscall.SysProcAttr{}
			if err := start(cmd); err != nil {
				b.Fatal(err)
			}
			cmd.Wait()
		}
	}
	b.Run("outside", func(b *testing.B) { run(b, (*exec.Cmd).Start) })
	b.Run("inside", func(b *testing.B) {
		run(b, func(cmd *exec.Cmd) error { return g.Start(cmd.SysProcAttr, cmd.Start) })
	})
}

func benchManager(b *testing.B) *Manager {
	b.Helper()
	if !testenv.CgroupV2.Met() {
		testenv.Need(b, testenv.CgroupV1)
	}
	m, err := Detect(fmt.Sprintf("bench%d", os.Getpid()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}
