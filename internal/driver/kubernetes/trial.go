package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Limits of the trial sandbox. The agent's own threads count as processes of its user, and a busy
// agent starts some after Setup has counted them, so trialPIDs is more than these.
const (
	trialMemory = 64 << 20
	trialCPUs   = 0.5
	trialPIDs   = 24
	trialDisk   = 8 << 20
)

// trial is a sandbox in which the driver tries out what the cluster enforces.
type trial struct {
	*client.Sandbox
	pod *corev1.Pod
}

// newTrial makes a trial sandbox, on any node if node is "".
func (d *Driver) newTrial(ctx context.Context, cpus float64, node string) (*trial, error) {
	id := sandbar.NewID()
	if err := d.registry.Claim(string(id)); err != nil {
		return nil, err
	}
	b := d.newResources(id)
	b.node = node
	sb, err := b.create(ctx, sandbar.Spec{Image: sandbar.ImageHost, Limits: sandbar.Limits{Memory: trialMemory, CPUs: cpus, PIDs: trialPIDs, Disk: trialDisk, Files: 256}})
	if err != nil {
		b.undo(ctx)
		return nil, err
	}
	t := &trial{Sandbox: sb}
	if t.pod, _ = d.pods.get(b.name); t.pod == nil {
		return nil, errors.Join(sandbar.Errorf(sandbar.Unavailable, "the pod of a trial was deleted by somebody else"), sb.Destroy(ctx))
	}
	return t, nil
}

// trySandbox makes a sandbox and tries its limits.
func (d *Driver) trySandbox(ctx context.Context) error {
	cpus := trialCPUs
	if d.guest {
		cpus = contestCPUs
	}
	t, err := d.newTrial(ctx, cpus, "")
	if errors.Is(err, errOtherKernel) && !d.tried { // the runtime class is another than its name says
		d.tried, d.guest = true, !d.guest
		if err := d.describe(); err != nil {
			return err
		}
		return d.trySandbox(ctx)
	}
	if sandbar.CodeOf(err) == sandbar.Unsupported && !errors.Is(err, errOtherKernel) && d.opt.agentBy == byAuto {
		d.log.Info("the cluster makes no pod with an image volume, so an init container copies the agent", "error", err)
		d.opt.agentBy = byCopy
		if cerr := d.trySandbox(ctx); cerr != nil {
			return err // the first way says more
		}
		return nil
	}
	if errors.Is(err, errUnreachable) && d.opt.reach == byAuto {
		d.log.Info("the addresses of pods are out of reach, so connections go through the API server", "error", err)
		d.opt.reach = byExec
		xerr := d.api.checkRights(ctx, d.rights())
		if xerr == nil {
			xerr = d.trySandbox(ctx)
		}
		if xerr == nil {
			return nil
		}
		both, second := *sandbar.AsError(err), sandbar.AsError(xerr)
		both.Message += "; and through the API server: " + second.Message
		both.Fix = "run the daemon where it reaches the addresses of pods; or " + cmp.Or(second.Fix, "check that kubectl exec works")
		return &both
	}
	if err != nil {
		return err
	}
	if d.opt.agentBy == byAuto {
		d.opt.agentBy = byVolume
	}
	if d.opt.reach == byAuto {
		d.opt.reach = byAddress
	}
	if d.opt.reach == byExec {
		d.caps.Notes = append(d.caps.Notes, "the daemon reaches pods "+d.reachedBy())
	}
	return errors.Join(d.tryLimits(ctx, t), t.Destroy(ctx))
}

// attempt finds out whether a limit holds.
type attempt struct {
	limit string
	by    *sandbar.Enforcement // becomes EnforcedNone if the limit does not hold
	holds func(context.Context, *trial) (bool, error)
}

// tryLimits completes what the driver enforces: a limit that does not hold in the trial sandbox
// counts as not enforced.
func (d *Driver) tryLimits(ctx context.Context, t *trial) error {
	e := &d.caps.Enforced
	attempts := []attempt{{"processes", &e.PIDs, tryPIDs}, {"disk", &e.Disk, tryDisk}}
	if d.guest {
		attempts = append(attempts, attempt{"memory", &e.Memory, tryGuestMemory}, attempt{"processors", &e.CPUs, d.contest})
	} else {
		files, err := t.Counters(ctx)
		if err != nil {
			return err
		}
		d.readBack(files)
	}
	for _, a := range attempts {
		held, err := a.holds(ctx, t)
		if err != nil {
			return sandbar.Errorf(sandbar.CodeOf(err), "trying the limit of %s in a pod: %w", a.limit, err)
		}
		if !held {
			*a.by = sandbar.EnforcedNone
		}
		if *a.by == sandbar.EnforcedNone {
			d.caps.Notes = append(d.caps.Notes, "in a pod that the driver made to try it, the limit of "+a.limit+" did not hold, so it counts as not enforced")
		}
	}
	return nil
}

// readBack sets the mechanisms of the limits of memory and processors: what a sandbox reads from
// its cgroup. A limit that cannot be read counts as not enforced.
func (d *Driver) readBack(files [wire.Counters]string) {
	e := &d.caps.Enforced
	e.Memory, e.CPUs = sandbar.EnforcedNone, sandbar.EnforcedNone
	first := func(i int) string {
		if f := strings.Fields(files[i]); len(f) > 0 {
			return f[0]
		}
		return ""
	}
	memory, quota := strconv.Itoa(trialMemory), strconv.Itoa(trialCPUs*100_000) // the period is 0.1 s
	switch memory {
	case first(wire.MemoryLimit1):
		e.Memory = sandbar.EnforcedCgroup1
	case first(wire.MemoryLimit2):
		e.Memory = sandbar.EnforcedCgroup2
	}
	switch quota {
	case first(wire.CPUQuota1):
		e.CPUs = sandbar.EnforcedCgroup1
	case first(wire.CPUQuota2):
		e.CPUs = sandbar.EnforcedCgroup2
	}
	d.caps.OOMCounted = e.Memory != sandbar.EnforcedNone && strings.Contains(files[wire.MemoryOOM1]+files[wire.MemoryEvents2], "oom_kill ")
	for name, by := range map[string]sandbar.Enforcement{"memory": e.Memory, "processors": e.CPUs} {
		if by == sandbar.EnforcedNone {
			d.caps.Notes = append(d.caps.Notes, "a sandbox cannot read its limit of "+name+" from its cgroup, so the limit counts as not enforced")
		}
	}
}

// tryPIDs reports whether a sandbox refuses one process more than its limit.
func tryPIDs(ctx context.Context, t *trial) (held bool, err error) {
	input, end := io.Pipe()
	var running []driver.Process
	defer func() {
		end.Close()
		for _, p := range running {
			err = errors.Join(err, p.KillTree())
			_, werr := p.Wait()
			err = errors.Join(err, werr)
		}
	}()
	for range trialPIDs + 1 {
		// read waits for the end of its input, in the shell itself
		p, err := t.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", "read line"}}, driver.Stdio{Stdin: input})
		if sandbar.CodeOf(err) == sandbar.Conflict && len(running) > 0 {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		running = append(running, p)
	}
	return false, nil
}

// tryDisk reports whether no writable directory takes more bytes than its part of the limit, and
// the file of the container's termination message, which is on the node's disk, no more than twice
// the limit.
func tryDisk(ctx context.Context, t *trial) (held bool, err error) {
	for _, part := range parts() {
		err := fill(ctx, t.FS(), part.dir+"/fill", trialDisk/8*part.eighths+1)
		if sandbar.CodeOf(err) == sandbar.NoSpace {
			continue
		}
		return false, err
	}
	p, err := t.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", overflow, "sh", corev1.TerminationMessagePathDefault, strconv.Itoa(2*trialDisk>>16 + 1)}}, driver.Stdio{})
	if err != nil {
		return false, err
	}
	r, err := p.Wait()
	return r.Outcome != sandbar.Exited || r.ExitCode != 0, err
}

// overflow writes $2 times 64 KiB to the file $1, with what every sh has built in.
const overflow = `exec >>"$1" || exit; x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do x=$x$x; done
i=0; while [ $i -lt "$2" ]; do printf %s "$x" || exit 1; i=$((i+1)); done`

// fill writes a file and removes it.
func fill(ctx context.Context, fs sandbar.FS, name string, size int64) error {
	w, err := fs.Create(ctx, name, sandbar.CreateOptions{})
	if err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for size > 0 && err == nil {
		var n int
		n, err = w.Write(zeros[:min(size, int64(len(zeros)))])
		size -= int64(n)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		w.Abort()
		return err
	}
	return fs.Remove(ctx, name, false)
}

// tryGuestMemory reports whether gVisor's kernel runs in the pod's cgroup with the limit of the
// pod: it takes that limit for the size of the machine's memory. The agent's watchdog holds the
// programs to the limit of the sandbox, and that cgroup holds all that the watchdog misses.
func tryGuestMemory(ctx context.Context, t *trial) (held bool, err error) {
	var out strings.Builder
	p, err := t.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", machineMemory}}, driver.Stdio{Stdout: &out})
	if err != nil {
		return false, err
	}
	if _, err := p.Wait(); err != nil {
		return false, err
	}
	most := t.pod.Spec.Overhead.Memory().Value()
	for _, c := range t.pod.Spec.Containers {
		most += c.Resources.Limits.Memory().Value()
	}
	n, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
	return err == nil && n > 0 && n<<10 <= most, nil
}

// machineMemory prints the size of the machine's memory in KiB, with what every sh has built in.
const machineMemory = `while read name value unit; do case $name in MemTotal:) echo "$value" ;; esac; done </proc/meminfo`

const (
	// contestCPUs is the limit of the first sandbox of a contest, rivalCPUs that of the second.
	contestCPUs = 0.1
	rivalCPUs   = 1
	// contestRound is the length of a round, contestRounds the most rounds: a node can be too busy for
	// a result for a while.
	contestRound  = time.Second
	contestRounds = 60
	// contestWins is how many rounds must have the result of the limits.
	contestWins = 3
	// contestRatio is the least ratio of work. The limits' is 10.
	contestRatio = 2.5
	// contestWork is the least work of the second sandbox in a round, in steps of worker.
	contestWork = 20
)

// worker writes a byte for every step of its work.
const worker = `while :; do i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; echo; done`

// contest reports whether the limit of processors holds on gVisor, where no file tells it. Two
// sandboxes work on the same node at the same time. They differ only in that limit. A busy node can
// leave both with less than the lower limit, but not for long: the limit holds if the second
// sandbox gets much more done in some rounds than the first in its best.
func (d *Driver) contest(ctx context.Context, t *trial) (held bool, err error) {
	rival, err := d.newTrial(ctx, rivalCPUs, t.pod.Spec.NodeName)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rival.Destroy(ctx)) }()
	var work [2]atomic.Int64
	for i, s := range []*trial{t, rival} {
		p, err := s.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", worker}}, driver.Stdio{Stdout: counter{&work[i]}})
		if err != nil {
			return false, err
		}
		defer func() {
			err = errors.Join(err, p.KillTree())
			_, werr := p.Wait()
			err = errors.Join(err, werr)
		}()
	}
	var best int64     // of the first sandbox, in a round
	var others []int64 // of the second, by round
	for range contestRounds {
		before := [2]int64{work[0].Load(), work[1].Load()}
		select {
		case <-ctx.Done():
			return false, sandbar.Errorf(sandbar.CodeOfContext(ctx), "measuring processors: %w", ctx.Err())
		case <-time.After(contestRound):
		}
		best = max(best, work[0].Load()-before[0])
		others = append(others, work[1].Load()-before[1])
		wins := 0
		for _, n := range others {
			if n >= contestWork && float64(n) >= contestRatio*float64(best) {
				wins++
			}
		}
		if wins >= contestWins && best > 0 {
			return true, nil
		}
	}
	return false, nil
}

// counter counts written bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
