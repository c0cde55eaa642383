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

// A hunt finds the processes of a sandbox in /proc and ends them. A process
// belongs when it carries the mark, is a child of ours that is not reaped or
// in that child's session, or descends from one that belongs.
//
// What is hunted may be forking all the time, so one empty look proves
// nothing. A hunt is over after two looks in a row that found nothing and that
// saw every process they had listed alive, or dead already in the look before:
// what has died since may have forked since. See quiet for the bound on that.
type hunt struct {
	marked   func(word string) bool // a word of the mark's variable
	children []*child
	corpses  map[proc]bool // the dead of the last look
}

// quiet bounds how many looks a hunt takes when it finds nothing but processes
// on the host keep vanishing while it looks.
const quiet = 40

// killMarked ends all processes that carry mark or descend from children.
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
				return nil // a busy host: its looks take long, and this is as much as quiet of them
			}
			return sandbar.Errorf(sandbar.Internal, "%d processes of a sandbox do not die", found)
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// round takes one look and kills what it finds. Our own children cannot be
// reaped meanwhile, so that their numbers mean them.
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

// look lists the processes that belong, newest first. With stop it also stops
// each as soon as it is seen, so that it forks no more and the line of
// descent stays whole.
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

// ours reports whether p is a child that is not reaped, or in its session.
func (h *hunt) ours(p proc) bool {
	return slices.ContainsFunc(h.children, func(c *child) bool {
		return !c.ended && (p.pid == c.id || p.session == c.id)
	})
}

// carries reports whether the mark is in the environment that the process was
// given, and whether the process has ended before that could be read. Another
// user's environment cannot be read, and is not ours.
func (h *hunt) carries(p proc) (marked, gone bool) {
	env, err := os.ReadFile(procFile(p.pid, "environ"))
	if err != nil {
		return false, vanished(err)
	}
	if len(env) == 0 { // older kernels: also of one that is just ending
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

// descendants returns those of others whose line leads to one of prey.
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

// proc is what /proc says of a process. pid and start together name it.
type proc struct {
	pid, ppid, session int
	threads            int
	kernel             bool // a thread of the kernel's
	bare               bool // has given up its memory on the way to its end
	state              byte
	start              string
}

// dead reports whether the process only waits to be reaped. One whose first
// thread has ended while others go on looks the same but for their number.
func (p proc) dead() bool { return p.threads <= 1 && p.state == 'Z' || p.state == 'X' }

// signal sends a signal to this process, never to another that got its number.
func (p proc) signal(sig syscall.Signal) {
	h, err := os.FindProcess(p.pid) // holds a pidfd where the kernel has them
	if err != nil {
		return
	}
	defer h.Release()
	if now, err := readProc(p.pid); err == nil && now.start == p.start {
		h.Signal(sig)
	}
}

// listPIDs lists all processes, the newest numbers first: what forks fast is
// seen before it is gone.
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

// kernelThread is PF_KTHREAD among a process's flags.
const kernelThread = 0x00200000

// parseStat reads /proc/PID/stat. The name in it may hold anything, so it
// ends at the last parenthesis.
func parseStat(pid int, stat string) (proc, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	// From the third field of proc(5): state ppid pgrp session … flags (9th) …
	// num_threads (20th) … starttime (22nd) vsize (23rd).
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

// vanished reports whether a process was gone when it was looked at.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// leftProcesses finds the processes that a dead instance left behind; with
// remove it kills them.
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
