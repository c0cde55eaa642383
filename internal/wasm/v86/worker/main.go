package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar/internal/linux/confine"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/machine"
)

// Name is a worker's argv[0]; the driver starts it under this name.
const Name = "sandbar-v86-worker"

// The modes of a worker.
const (
	ModeBoot = "boot"
	ModeRun  = "run"
)

// Job is what a worker is to do.
type Job struct {
	Mode    string
	Modules string // directory of the emulator's files; "": those in the binary
	Cache   string // directory of what has been compiled
	Path    string // of the image to boot, or the snapshot to run
	// Memory of the machine in bytes, and how long it may take to boot. For
	// ModeBoot.
	Memory int64
	Limit  time.Duration
}

// Args is the argv of a worker.
func (j Job) Args() []string {
	return []string{Name, j.Mode, j.Modules, j.Cache, j.Path, strconv.FormatInt(j.Memory, 10), strconv.FormatInt(int64(j.Limit), 10)}
}

// parse reads the argv of a worker.
func parse(args []string) (j Job, err error) {
	j = Job{Mode: args[1], Modules: args[2], Cache: args[3], Path: args[4]}
	if j.Memory, err = strconv.ParseInt(args[5], 10, 64); err != nil {
		return j, err
	}
	limit, err := strconv.ParseInt(args[6], 10, 64)
	j.Limit = time.Duration(limit)
	return j, err
}

// IsWorker reports whether this process was started to be a worker.
func IsWorker() bool { return len(os.Args) == 7 && os.Args[0] == Name }

// Env is the environment of workers. What the emulator executes returns every
// millisecond by itself, so nothing need be interrupted.
func Env() []string {
	env := []string{"GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1,containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); runtime.GOOS == "windows" && root != "" {
		env = append(env, "SYSTEMROOT="+root) // without it no random numbers can be had
	}
	return env
}

// Main is the worker. It never returns.
func Main() {
	// Descriptor 1 speaks to the host; nothing else may ever write there.
	out := os.Stdout
	os.Stdout = os.Stderr
	j, err := parse(os.Args)
	if err == nil {
		err = j.do(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, Failure+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// Failure begins the line on a worker's standard error that says why it ends.
const Failure = "failed: "

// Progress begins a line on it that tells how long a boot has taken.
const Progress = progress

func (j Job) do(out *os.File) error {
	debug.SetGCPercent(50)
	ctx := context.Background()
	pc, err := artefact.PC(j.Modules)
	if err != nil {
		return err
	}
	emulator, err := machine.Load(ctx, machine.Program{Script: pc.Script, Core: pc.Core, BIOS: pc.BIOS, VGA: pc.VGA}, j.Cache)
	if err != nil {
		return err
	}
	if j.Mode == ModeBoot {
		return j.boot(ctx, emulator, pc.Guest, out)
	}
	return j.run(ctx, emulator, out)
}

// ownMemory is far more than a worker needs beside the machine's memory and
// what the emulator reserves with it, in bytes.
const ownMemory = 3 << 30

// confined takes from this process what it does not need any more.
func (j Job) confined(memory int64) error {
	if err := confine.LimitData(memory + ownMemory); err != nil {
		return err
	}
	if err := confine.Worker(j.Cache); err != nil {
		return err
	}
	return confine.Runner()
}

func (j Job) boot(ctx context.Context, emulator *machine.Emulator, agent []byte, out *os.File) error {
	files, err := image.Open(j.Path)
	if err != nil {
		return err
	}
	if err := j.confined(j.Memory + image.MaxSize); err != nil {
		return err
	}
	go func() { // whoever started this has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	s, err := boot(ctx, bootConfig{emulator: emulator, files: files, memory: j.Memory, agent: agent, limit: j.Limit})
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	if err := writeSnapshot(w, s, j.Memory); err != nil {
		return err
	}
	return w.Flush()
}

func (j Job) run(ctx context.Context, emulator *machine.Emulator, out *os.File) error {
	fresh, memory, discard, err := openSnapshot(j.Path)
	if err != nil {
		return err
	}
	if err := j.confined(memory); err != nil {
		return err
	}
	s := &server{emulator: emulator, fresh: fresh, memory: memory, discard: discard, out: out}
	return s.serve(ctx, os.Stdin)
}
