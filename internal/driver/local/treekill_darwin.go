package local

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// killTagged kills the process groups and descendants of unreaped children. On this system the
// environment of other processes cannot be read, so a process that has left its group and lost its
// parent is not found.
func killTagged(ctx context.Context, tag string, children []*child) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		found, err := killRound(children)
		if err != nil || found == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.Internal, "%d processes of a sandbox do not die", found)
		case <-time.After(pause):
		}
	}
}

func killRound(children []*child) (int, error) {
	for _, c := range children {
		c.mu.Lock() // it cannot be reaped now, so its pid is valid
		defer c.mu.Unlock()
	}
	table, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return 0, sandbar.Errorf(sandbar.Internal, "listing processes: %w", err)
	}
	in := map[int32]bool{}
	for _, c := range children {
		if !c.ended {
			in[int32(c.id)] = true
		}
	}
	belongs := func(p *unix.KinfoProc) bool { return in[p.Eproc.Ppid] || in[p.Eproc.Pgid] }
	for grew := true; grew; {
		grew = false
		for i := range table {
			if p := &table[i]; !in[p.Proc.P_pid] && belongs(p) {
				in[p.Proc.P_pid], grew = true, true
			}
		}
	}
	const zombie = 5 // SZOMB of sys/proc.h
	found := 0
	for i := range table {
		p := &table[i]
		if in[p.Proc.P_pid] && p.Proc.P_stat != zombie && int(p.Proc.P_pid) != os.Getpid() {
			found++
			syscall.Kill(int(p.Proc.P_pid), syscall.SIGKILL)
		}
	}
	return found, nil
}

// leftProcesses returns none: see killTagged.
func leftProcesses(context.Context, string, bool) ([]int, error) { return nil, nil }
