package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/driver/oci"
	"github.com/sandbar-dev/sandbar/internal/driver/vm"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/qemu"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// machines is a vm driver with the kernel and the root of `make tools`.
type machines struct {
	*vm.Driver
	options map[string]string
}

// newMachines opens the driver. VM_ACCELERATOR selects the accelerator. Without it machines are
// emulated, because /dev/kvm exists on hosts where no machine runs on it.
func newMachines() (*machines, error) {
	options, err := testenv.VMOptions()
	if err != nil {
		return nil, err
	}
	if a := os.Getenv("VM_ACCELERATOR"); a != "" {
		options["accelerator"] = a
	}
	d, err := vm.New(driver.Host{Options: options}, embedded.Binary())
	if err != nil {
		return nil, err
	}
	return &machines{d, options}, nil
}

// most returns a bound for emulated machines, or for those on KVM.
func (m *machines) most(emulated, kvm time.Duration) time.Duration {
	if m.options["accelerator"] == qemu.TCG {
		return emulated
	}
	return kvm
}

// withMachines calls measure with a driver that has a snapshot of the machine. It closes the
// driver, unless measure has given it to an engine.
func withMachines(measure func(*machines) (measured, error)) func(*lab) (measured, error) {
	return func(*lab) (measured, error) {
		d, err := newMachines()
		if err != nil {
			return measured{}, err
		}
		box, err := createOn(d)
		if err == nil {
			err = box.Destroy(context.Background())
		}
		if err != nil {
			return measured{}, errors.Join(err, d.Close())
		}
		m, err := measure(d)
		return m, errors.Join(err, d.Close()) // a second Close does nothing
	}
}

// createOn makes a sandbox with the limits of the other benchmarks.
func createOn(d driver.Driver) (driver.Sandbox, error) {
	return d.Create(context.Background(), sandbar.NewID(), spec())
}

// vmCreate compares a restore, up to the agent's answers, with that of a minimal machine up to its
// first answer.
func vmCreate(d *machines) (measured, error) {
	bare, err := newBareMachine(d.options)
	if err != nil {
		return measured{}, err
	}
	defer bare.close()
	var undo func() error
	all, err := inTurn(20, func() error { return undo() },
		func() error {
			box, err := createOn(d)
			undo = func() error { return box.Destroy(context.Background()) }
			return err
		},
		func() error {
			undo = bare.end
			return bare.restore()
		})
	if err != nil {
		return measured{}, err
	}
	ours, theirs := all[0], all[1]
	return measured{
		value:    fmt.Sprintf("%v; %.2f × bare", ours, ratio(ours, theirs)),
		baseline: "bare qemu with a minimal guest, from its start to the first answer: " + theirs.String(),
		kept:     ours.quantile(0.5) <= d.most(250*time.Millisecond, 60*time.Millisecond) && ratio(ours, theirs) <= 1.5,
	}, nil
}

// vmReady measures the creation of a sandbox from a machine that is ready and rests.
func vmReady(d *machines) (measured, error) {
	e, err := engine.New(engine.Config{Driver: d, AllowDegraded: true, Templates: []engine.Template{{Spec: sandbar.Spec{Limits: spec().Limits}, Min: 1}}})
	if err != nil {
		return measured{}, err
	}
	defer closeEngine(e)
	var took times
	for range 20 {
		if err := awaitTemplate(e); err != nil {
			return measured{}, err
		}
		began := time.Now()
		box, err := e.Create(context.Background(), sandbar.Spec{Limits: spec().Limits})
		if err != nil {
			return measured{}, err
		}
		took = append(took, time.Since(began))
		if err := e.Stop(context.Background(), box.ID()); err != nil {
			return measured{}, err
		}
	}
	sortTimes(took)
	return measured{
		value: fmt.Sprintf("%v; %d were not ready", took, e.Templates()[0].Misses),
		kept:  took.quantile(0.5) <= d.most(20*time.Millisecond, 3*time.Millisecond),
	}, nil
}

// vmPython measures a program in a ready machine, in which Python waits.
func vmPython(d *machines) (measured, error) {
	return readyPython(d, d.most(250*time.Millisecond, 10*time.Millisecond))
}

// runTrue runs `true` in a sandbox.
func runTrue(box driver.Sandbox) error {
	p, err := box.Start(context.Background(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
	if err != nil {
		return err
	}
	return exited(p.Wait())
}

// vmTrue measures `true` in a live machine.
func vmTrue(d *machines) (measured, error) {
	box, err := createOn(d)
	if err != nil {
		return measured{}, err
	}
	defer box.Destroy(context.Background())
	for range 20 { // until the emulator has translated the code
		if err := runTrue(box); err != nil {
			return measured{}, err
		}
	}
	ours, bare, err := interleave(100, func() error { return runTrue(box) }, command("/usr/bin/true"))
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "bare true: " + bare.String(), kept: ours.quantile(0.5) <= 10*time.Millisecond}, nil
}

// vmFiles measures the transfer of one file into a machine and out of it.
func vmFiles(d *machines) (measured, error) {
	const size = 32 << 20
	box, err := createOn(d)
	if err != nil {
		return measured{}, err
	}
	defer box.Destroy(context.Background())
	ctx := context.Background()
	var in, out float64
	for range 3 {
		began := time.Now()
		w, err := box.FS().Create(ctx, "/tmp/file", sandbar.CreateOptions{})
		if err != nil {
			return measured{}, err
		}
		if n, err := io.Copy(w, io.LimitReader(zeros{}, size)); err != nil || n != size {
			w.Abort()
			return measured{}, fmt.Errorf("%d bytes were written: %w", n, err)
		}
		if err := w.Commit(); err != nil {
			return measured{}, err
		}
		in = max(in, size/1e6/time.Since(began).Seconds())
		began = time.Now()
		f, err := box.FS().Open(ctx, "/tmp/file")
		if err != nil {
			return measured{}, err
		}
		n, err := io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil || n != size {
			return measured{}, fmt.Errorf("%d bytes were read: %w", n, err)
		}
		out = max(out, size/1e6/time.Since(began).Seconds())
	}
	return measured{value: fmt.Sprintf("%.0f MB/s in, %.0f MB/s out, the best of 3", in, out), kept: min(in, out) >= 30}, nil
}

// vmIdle measures ten machines that wait: their memory, and their use of the processor while they
// run and while they rest.
func vmIdle(d *machines) (measured, error) {
	const n, rest = 10, 10 * time.Second
	ctx := context.Background()
	var boxes []driver.Sandbox
	defer func() {
		for _, b := range boxes {
			b.Destroy(ctx)
		}
	}()
	for range n {
		box, err := createOn(d)
		if err != nil {
			return measured{}, err
		}
		boxes = append(boxes, box)
	}
	pids, err := agentsOf(os.Getpid()) // the monitors
	if err != nil || len(pids) != n {
		return measured{}, fmt.Errorf("found %d monitors of %d machines: %w", len(pids), n, err)
	}
	pss := func() (sum int64) {
		for _, pid := range pids {
			sum += field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
		}
		return sum / n
	}
	share := func() float64 {
		before := cpuTime(pids)
		time.Sleep(rest)
		return 100 * float64(cpuTime(pids)-before) / float64(rest) / n
	}
	time.Sleep(2 * time.Second) // until the machines have settled
	size, running := pss(), share()
	for _, b := range boxes {
		r, _ := driver.As[driver.Rester](b)
		if err := r.Rest(ctx); err != nil {
			return measured{}, err
		}
	}
	resting := share()
	for _, b := range boxes {
		r, _ := driver.As[driver.Rester](b)
		if err := errors.Join(r.Wake(ctx), runTrue(b)); err != nil {
			return measured{}, err
		}
	}
	return measured{
		value: fmt.Sprintf("%.1f MiB (PSS) each of %d, %.1f after `true`; %.2f %% of a processor ready, %.1f %% running",
			mib(size), n, mib(pss()), resting, running),
		kept: size <= 30<<20 && resting < 0.05,
	}, nil
}

// vmBurst creates 50 machines at once, and runs a program in each.
func vmBurst(d *machines) (measured, error) {
	const n = 50
	began := time.Now()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			box, err := createOn(d)
			if err == nil {
				err = errors.Join(runTrue(box), box.Destroy(context.Background()))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	took := time.Since(began)
	return measured{value: fmt.Sprintf("%.1f s until the last is destroyed, %.0f ms each", took.Seconds(), ms(took/n)), kept: true}, errors.Join(errs...)
}

// holding is a program that holds 100 MiB and writes some of it again and again.
const holding = `import time
b = bytearray(b"x") * (100 << 20)
print("ready", flush=True)
while True:
    for i in range(0, 1 << 20, 4096): b[i] ^= 1
    time.sleep(0.01)`

// vmFork measures how long a running machine of 512 MiB stands still while it is forked, as a
// client sees it: the longest call during each fork. It also measures the time until the copy
// answers.
func vmFork(d *machines) (measured, error) {
	ctx := context.Background()
	s := spec()
	s.Limits.Memory = 512 << 20
	box, err := d.Create(ctx, sandbar.NewID(), s)
	if err != nil {
		return measured{}, err
	}
	defer box.Destroy(ctx)
	saver, ok := driver.As[driver.Saver](box)
	if !ok {
		return measured{}, errors.New("the sandbox cannot be saved")
	}
	ready, output := io.Pipe()
	if _, err := box.Start(ctx, sandbar.Cmd{Args: []string{"python3", "-c", holding}}, driver.Stdio{Stdout: output}); err != nil {
		return measured{}, err
	}
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		return measured{}, err
	}
	call := func() (time.Duration, error) {
		began := time.Now()
		_, err := box.FS().Stat(ctx, "/tmp")
		return time.Since(began), err
	}
	var usual, longest, copies times
	for range 10 {
		took, err := call()
		if err != nil {
			return measured{}, err
		}
		usual = append(usual, took)
		still, answered, err := forkOnce(ctx, d, saver, s, call)
		if err != nil {
			return measured{}, err
		}
		longest, copies = append(longest, still), append(copies, answered)
	}
	sortTimes(usual)
	sortTimes(longest)
	sortTimes(copies)
	return measured{
		value: fmt.Sprintf("%v; a call without a fork %v; the copy answers after %v", longest, usual, copies),
		kept:  longest.quantile(0.5) <= 100*time.Millisecond,
	}, nil
}

// forkOnce saves a sandbox and restores a copy. It returns the longest of the calls that were made
// one after the other during the save, and the time until the copy has answered.
func forkOnce(ctx context.Context, d *machines, saver driver.Saver, s sandbar.Spec, call func() (time.Duration, error)) (longest, answered time.Duration, err error) {
	dir, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	saved := make(chan error, 1)
	go func() {
		_, err := saver.Save(ctx, dir, driver.SaveOptions{})
		saved <- err
	}()
	for done := false; !done; {
		took, err := call()
		if err != nil {
			return 0, 0, err
		}
		longest = max(longest, took)
		select {
		case err := <-saved:
			if err != nil {
				return 0, 0, err
			}
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	fork, err := d.Restore(ctx, sandbar.NewID(), s, dir)
	if err == nil {
		_, err = fork.FS().Stat(ctx, "/tmp")
		answered = time.Since(began)
		err = errors.Join(err, fork.Destroy(ctx))
	}
	return longest, answered, err
}

// liveTrue measures create, and `true` in a live sandbox, with another driver.
func liveTrue(d driver.Driver) (measured, error) {
	defer closeDriver(d)
	live, err := createOn(d)
	if err != nil {
		return measured{}, err
	}
	defer live.Destroy(context.Background())
	var box driver.Sandbox
	all, err := inTurn(20, func() error {
		if box == nil {
			return nil
		}
		b := box
		box = nil
		return b.Destroy(context.Background())
	}, func() (err error) {
		box, err = createOn(d)
		return err
	}, func() error { return runTrue(live) })
	if err != nil {
		return measured{}, err
	}
	return measured{value: "create: " + all[0].String() + "; true: " + all[1].String()}, nil
}

// vmBesideGVisor is liveTrue for gVisor.
func vmBesideGVisor(*lab) (measured, error) {
	path, err := runsc()
	if err != nil {
		return measured{}, err
	}
	d, err := oci.New(driver.Host{Options: map[string]string{"runtime": path}}, oci.NameGVisor, embedded.Binary())
	if err != nil {
		return measured{}, err
	}
	return liveTrue(d)
}

// vmBesideDocker is liveTrue for Docker.
func vmBesideDocker(l *lab) (measured, error) {
	return withDocker(l, func(_ *dockerd.Engine, d driver.Driver) (measured, error) { return liveTrue(d) })
}
