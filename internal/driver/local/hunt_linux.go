package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// A hunt finds the processes of a sandbox in /proc and kills them. A process belongs to the sandbox
// if it has the mark, is an unreaped child of this process or in that child's session, or descends
// from such a process.
//
// The processes may fork during a scan, so one empty scan proves nothing. A hunt is over after two
// consecutive scans that found nothing and that saw every listed process either alive or already
// dead in the scan before: a process that died between the two may have forked in between. quiet
// bounds the number of scans.
type hunt struct {
	marked   func(word string) bool // matches a word of the mark's variable
	children []*child
	corpses  map[proc]bool // dead processes of the last scan
}

// quiet bounds the scans of a hunt that finds nothing while other processes of the host keep
// exiting.
const quiet = 40

// killMarked kills all processes that have mark or descend from children.
func killMarked(ctx context.Context, mark string, children []*child) error {
	h := hunt{marked: func(w string) bool { return w == mark }, children: children}
	return h.kill(ctx)
}

func (h *hunt) kill(ctx context.Context) error {
	pause := time.Millisecond
	for empty, looks := 0, 0; ; looks++ {
		found, sawAll, err := h.round()
		if err != nil {
			return err
		}
		switch {
		case found > 0:
			empty, looks = 0, 0
		case sawAll || looks >= quiet:
			empty++
		}
		if empty == 2 {
			return nil
		}
		if found == 0 {
			pause = time.Millisecond
		}
		select {
		case <-ctx.Done():
			if found == 0 {
				// on a busy host scans take long, and this takes as long as quiet scans elsewhere
				return nil
			}
			return sandbar.Errorf(sandbar.Internal, "%d processes of a sandbox do not die", found)
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// round performs one scan and kills what it finds. Children cannot be reaped meanwhile, so their
// pids are valid.
func (h *hunt) round() (found int, sawAll bool, err error) {
	for _, c := range h.children {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	prey, sawAll, err := h.look(true)
	for _, p := range prey {
		p.signal(syscall.SIGKILL)
	}
	return len(prey), sawAll, err
}

// look lists the processes that belong to the sandbox, newest first. With stop it also stops each
// at once, so that it forks no more and the chain of parents stays intact.
func (h *hunt) look(stop bool) (prey []proc, sawAll bool, err error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, false, sandbar.Errorf(sandbar.Internal, "listing processes: %w", err)
	}
	sawAll = true
	var others []proc
	corpses := map[proc]bool{}
	for _, pid := range pids {
		p, err := readProc(pid)
		if err != nil {
			sawAll = sawAll && !vanished(err)
			continue
		}
		if p.kernel || pid == os.Getpid() {
			continue
		}
		if p.dead() {
			corpses[p] = true
			sawAll = sawAll && h.corpses[p]
			continue
		}
		belongs, gone := h.ours(p), false
		if !belongs {
			belongs, gone = h.carries(p)
		}
		sawAll = sawAll && !gone
		switch {
		case belongs:
			if stop {
				p.signal(syscall.SIGSTOP)
			}
			prey = append(prey, p)
		default:
			others = append(others, p)
		}
	}
	h.corpses = corpses
	return append(prey, descendants(prey, others)...), sawAll, nil
}

// ours reports whether p is an unreaped child, or in its session.
func (h *hunt) ours(p proc) bool {
	return slices.ContainsFunc(h.children, func(c *child) bool {
		return !c.ended && (p.pid == c.id || p.session == c.id)
	})
}

// carries reports whether a process's initial environment has the mark, and whether the process
// exited before it could be read. The environment of another user's process cannot be read; such a
// process is not ours.
func (h *hunt) carries(p proc) (marked, gone bool) {
	env, err := os.ReadFile(procFile(p.pid, "environ"))
	if err != nil {
		return false, vanished(err)
	}
	if len(env) == 0 { // older kernels: also of a process that is just exiting
		now, err := readProc(p.pid)
		return false, err != nil || now.dead() || now.bare
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if mark, ok := strings.CutPrefix(string(v), markName+"="); ok {
			return slices.ContainsFunc(strings.Fields(mark), h.marked), false
		}
	}
	return false, false
}

// descendants returns those of others that descend from prey.
func descendants(prey, others []proc) []proc {
	in := map[int]bool{}
	for _, p := range prey {
		in[p.pid] = true
	}
	var found []proc
	for grew := true; grew; {
		grew = false
		for _, p := range others {
			if in[p.ppid] && !in[p.pid] {
				in[p.pid], grew = true, true
				found = append(found, p)
			}
		}
	}
	return found
}

// proc is a process in /proc. pid and start together identify it.
type proc struct {
	pid, ppid, session int
	threads            int
	kernel             bool // a kernel thread
	bare               bool // has released its memory while exiting
	state              byte
	start              string
}

// dead reports whether the process waits to be reaped. A process whose main thread has exited looks
// the same (Z), but has more than one thread.
func (p proc) dead() bool { return p.threads <= 1 && p.state == 'Z' || p.state == 'X' }

// signal signals this process, never another with the same pid.
func (p proc) signal(sig syscall.Signal) {
	h, err := os.FindProcess(p.pid) // holds a pidfd if the kernel has them
	if err != nil {
		return
	}
	defer h.Release()
	if now, err := readProc(p.pid); err == nil && now.start == p.start {
		h.Signal(sig)
	}
}

// listPIDs lists all processes, highest pids first, so that a fast forker's latest children are
// seen.
func listPIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	return pids, nil
}

func readProc(pid int) (proc, error) {
	b, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return proc{}, err
	}
	return parseStat(pid, string(b))
}

// kernelThread is PF_KTHREAD in a process's flags.
const kernelThread = 0x00200000

// parseStat parses /proc/PID/stat. The command name may contain any byte, so the fields start after
// the last parenthesis.
func parseStat(pid int, stat string) (proc, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	// Fields of proc_pid_stat(5) from the third: state ppid pgrp session … flags (9) … num_threads
	// (20) … starttime (22) vsize (23).
	if len(f) < 21 {
		return proc{}, fmt.Errorf("process %d: /proc has %d fields", pid, len(f))
	}
	ppid, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	threads, err3 := strconv.Atoi(f[17])
	flags, err4 := strconv.ParseUint(f[6], 10, 64)
	return proc{pid: pid, ppid: ppid, session: session, threads: threads, kernel: flags&kernelThread != 0, bare: f[20] == "0",
		state: f[0][0], start: f[19]}, errors.Join(err1, err2, err3, err4)
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// vanished reports whether an error means that the process does not exist any more.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// leftProcesses finds the processes of a dead instance; with remove it kills them.
func leftProcesses(ctx context.Context, instance string, remove bool) ([]int, error) {
	h := hunt{marked: func(w string) bool { return strings.HasPrefix(w, instance+".") }}
	prey, _, err := h.look(false)
	var pids []int
	for _, p := range prey {
		pids = append(pids, p.pid)
	}
	if err == nil && remove {
		err = h.kill(ctx)
	}
	return pids, err
}
