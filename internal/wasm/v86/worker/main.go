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

// Modes of a worker.
const (
	ModeBoot = "boot"
	ModeRun  = "run"
)

// Job describes a worker's task.
type Job struct {
	Mode    string
	Modules string // directory of the emulator's files; "": the embedded ones
	Cache   string // directory of compiled modules
	Path    string // path of the image for ModeBoot, of the snapshot for ModeRun
	// Memory of the machine in bytes, and the boot timeout. For ModeBoot.
	Memory int64
	Limit  time.Duration
}

// Args returns the argv of a worker.
func (j Job) Args() []string {
	return []string{Name, j.Mode, j.Modules, j.Cache, j.Path, strconv.FormatInt(j.Memory, 10), strconv.FormatInt(int64(j.Limit), 10)}
}

// parse parses the argv of a worker.
func parse(args []string) (j Job, err error) {
	j = Job{Mode: args[1], Modules: args[2], Cache: args[3], Path: args[4]}
	if j.Memory, err = strconv.ParseInt(args[5], 10, 64); err != nil {
		return j, err
	}
	limit, err := strconv.ParseInt(args[6], 10, 64)
	j.Limit = time.Duration(limit)
	return j, err
}

// IsWorker reports whether this process was started as a worker.
func IsWorker() bool { return len(os.Args) == 7 && os.Args[0] == Name }

// Env returns the environment of workers. Asynchronous preemption is off, because calls into
// WebAssembly return after about a millisecond.
func Env() []string {
	env := []string{"GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1,containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); runtime.GOOS == "windows" && root != "" {
		env = append(env, "SYSTEMROOT="+root) // Windows needs it for random numbers
	}
	return env
}

// Main runs the worker. It never returns.
func Main() {
	// Descriptor 1 carries the protocol; other output must go to standard error.
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

// Failure begins the line on a worker's standard error with the reason for its exit.
const Failure = "failed: "

// Progress begins a line on a worker's standard error with the duration of the boot so far.
const Progress = progress

func (j Job) do(out *os.File) error {
	debug.SetGCPercent(50)
	ctx := context.Background()
	pc, err := artefact.ReadEmulator(j.Modules)
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

// ownMemory is the worker's own limit besides the machine's memory, in bytes. It includes the
// address ranges that the emulator reserves, and is more than it ever needs.
const ownMemory = 3 << 30

// confine limits this process's memory and its access to files and system calls.
func (j Job) confine(memory int64) error {
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
	if err := j.confine(j.Memory + image.MaxSize); err != nil {
		return err
	}
	go func() { // exits when the parent process has exited
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
	if err := j.confine(memory); err != nil {
		return err
	}
	s := &server{emulator: emulator, initial: fresh, memory: memory, discard: discard, out: out}
	return s.serve(ctx, os.Stdin)
}
