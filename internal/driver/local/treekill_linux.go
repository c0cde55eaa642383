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

// A treeKiller finds the processes of a sandbox in /proc and kills them. A process belongs to the
// sandbox if it has the tag, is an unreaped child of this process or in that child's session, or
// descends from such a process.
//
// The processes may fork during a scan, so one empty scan proves nothing. It stops after two
// consecutive scans that found nothing and that saw every listed process either alive or already
// dead in the scan before: a process that died between the two may have forked in between.
// maxEmptyScans bounds the number of scans.
type treeKiller struct {
	matches  func(word string) bool // matches a word of the tag's variable
	children []*child
	lastDead map[proc]bool // dead processes of the last scan
}

// maxEmptyScans bounds the scans of a treeKiller that finds nothing while other processes of the
// host keep exiting.
const maxEmptyScans = 40

// killTagged kills all processes that have tag or descend from children.
func killTagged(ctx context.Context, tag string, children []*child) error {
	k := treeKiller{matches: func(w string) bool { return w == tag }, children: children}
	return k.kill(ctx)
}

func (k *treeKiller) kill(ctx context.Context) error {
	pause := time.Millisecond
	for empty, scans := 0, 0; ; scans++ {
		found, sawAll, err := k.killRound()
		if err != nil {
			return err
		}
		switch {
		case found > 0:
			empty, scans = 0, 0
		case sawAll || scans >= maxEmptyScans:
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
				// on a busy host scans take long, and this takes as long as maxEmptyScans scans
				// elsewhere
				return nil
			}
			return sandbar.Errorf(sandbar.Internal, "%d processes of a sandbox do not die", found)
		case <-time.After(pause):
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// killRound performs one scan and kills what it finds. Children cannot be reaped meanwhile, so
// their pids are valid.
func (k *treeKiller) killRound() (found int, sawAll bool, err error) {
	for _, c := range k.children {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	targets, sawAll, err := k.scan(true)
	for _, p := range targets {
		p.signal(syscall.SIGKILL)
	}
	return len(targets), sawAll, err
}

// scan lists the processes that belong to the sandbox, newest first. With stop it also stops each
// at once, so that it forks no more and the chain of parents stays intact.
func (k *treeKiller) scan(stop bool) (targets []proc, sawAll bool, err error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, false, sandbar.Errorf(sandbar.Internal, "listing processes: %w", err)
	}
	sawAll = true
	var others []proc
	dead := map[proc]bool{}
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
			dead[p] = true
			sawAll = sawAll && k.lastDead[p]
			continue
		}
		belongs, gone := k.isChild(p), false
		if !belongs {
			belongs, gone = k.hasTag(p)
		}
		sawAll = sawAll && !gone
		switch {
		case belongs:
			if stop {
				p.signal(syscall.SIGSTOP)
			}
			targets = append(targets, p)
		default:
			others = append(others, p)
		}
	}
	k.lastDead = dead
	return append(targets, descendants(targets, others)...), sawAll, nil
}

// isChild reports whether p is an unreaped child, or in its session.
func (k *treeKiller) isChild(p proc) bool {
	return slices.ContainsFunc(k.children, func(c *child) bool {
		return !c.ended && (p.pid == c.id || p.session == c.id)
	})
}

// hasTag reports whether a process's initial environment has the tag, and whether the process
// exited before it could be read. The environment of another user's process cannot be read; such a
// process is not ours.
func (k *treeKiller) hasTag(p proc) (tagged, gone bool) {
	env, err := os.ReadFile(procFile(p.pid, "environ"))
	if err != nil {
		return false, vanished(err)
	}
	if len(env) == 0 { // older kernels: also of a process that is just exiting
		now, err := readProc(p.pid)
		return false, err != nil || now.dead() || now.bare
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if tag, ok := strings.CutPrefix(string(v), tagVariable+"="); ok {
			return slices.ContainsFunc(strings.Fields(tag), k.matches), false
		}
	}
	return false, false
}

// descendants returns those of others that descend from targets.
func descendants(targets, others []proc) []proc {
	in := map[int]bool{}
	for _, p := range targets {
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

// dead reports whether the process waits to be reaped. A process whose main thread has exited scans
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
	k := treeKiller{matches: func(w string) bool { return strings.HasPrefix(w, instance+".") }}
	targets, _, err := k.scan(false)
	var pids []int
	for _, p := range targets {
		pids = append(pids, p.pid)
	}
	if err == nil && remove {
		err = k.kill(ctx)
	}
	return pids, err
}
