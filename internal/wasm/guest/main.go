package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"

	"github.com/sandbar-dev/sandbar/internal/linux/confine"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// Name is a runner's argv[0]; the worker starts it under this name.
const Name = "sandbar-wasm-runner"

// The first argument of a runner.
const (
	ModeRun     = "run"     // serve the worker on standard input and output
	ModeCompile = "compile" // fill the compilation cache and end
)

// IsRunner reports whether this process was started as a runner, with the arguments of Args.
func IsRunner() bool {
	return len(os.Args) == 4 && os.Args[0] == Name && (os.Args[1] == ModeRun || os.Args[1] == ModeCompile)
}

// Args returns the argv of a runner: a mode, the directory of the compilation cache, and that of
// the modules ("" for the embedded ones).
func Args(mode, cache, modules string) []string { return []string{Name, mode, cache, modules} }

// Main runs the runner. It never returns.
func Main() {
	// Descriptor 1 carries the protocol; other output must go to standard error.
	in, out := os.Stdin, os.Stdout
	os.Stdout = os.Stderr
	set, err := modules(os.Args[3])
	if err != nil {
		fail(err)
	}
	if os.Args[1] == ModeCompile {
		if err := compile(context.Background(), os.Args[2], set); err != nil {
			fail(err)
		}
		os.Exit(0)
	}
	if err := confine.Runner(); err != nil {
		fail(err)
	}
	r := &runner{conn: call.NewConn(in, out), cache: os.Args[2], set: set,
		frames: make(chan frame), engines: map[call.Language]engine{}}
	go r.receive()
	fail(r.serve())
}

// fail ends the process with a message on standard error, which the worker reads.
func fail(err error) {
	if err == nil {
		os.Exit(0)
	}
	os.Stderr.WriteString(Name + ": " + err.Error() + "\n")
	os.Exit(1)
}

// modules returns the modules of a directory, or the embedded ones.
func modules(dir string) (artefact.Set, error) {
	if dir != "" {
		return artefact.Read(dir)
	}
	if set := artefact.Embedded(); set.Complete() {
		return set, nil
	}
	return artefact.Set{}, errors.New("this build embeds no WebAssembly modules")
}

// runner is the state of one runner.
type runner struct {
	conn    *call.Conn
	cache   string
	set     artefact.Set
	frames  chan frame
	engines map[call.Language]engine
}

type frame struct {
	kind    call.Kind
	payload []byte // valid until the worker's next frame, the answer to this process's next frame
}

// engine is a compiled interpreter.
type engine interface {
	// run runs one program to its end.
	run(ctx context.Context, m *machine) (code uint8, err error)
}

// receive reads the worker's frames. It is always blocked in a read, so that the process exits at
// the end of its input, whatever else it does.
func (r *runner) receive() {
	for {
		kind, payload, err := r.conn.Receive()
		if err == io.EOF {
			os.Exit(0)
		}
		if err != nil {
			fail(err)
		}
		r.frames <- frame{kind, payload}
	}
}

// serve runs one program after another. It returns only with an error.
func (r *runner) serve() error {
	for {
		f := <-r.frames
		if f.kind == call.KindLoad {
			if err := r.load(f.payload); err != nil {
				return err
			}
			continue
		}
		if err := call.Expect(f.kind, call.KindRun); err != nil {
			return err
		}
		var run call.Run
		if err := run.Decode(f.payload); err != nil {
			return err
		}
		if err := confine.LimitData(run.Memory + ownMemory); err != nil {
			return err
		}
		debug.SetGCPercent(-1) // see the package comment
		done := r.run(&run)
		if err := r.conn.Send(call.KindDone, &done); err != nil {
			return err
		}
		// No program waits now, so returning memory delays none.
		debug.FreeOSMemory()
	}
}

// ownMemory is the runner's own limit besides linear memory, in bytes, and more than it ever needs.
const ownMemory = 1 << 30

// load loads the interpreter of a language in advance.
func (r *runner) load(payload []byte) error {
	var l call.Load
	if err := l.Decode(payload); err != nil {
		return err
	}
	_, err := r.engine(context.Background(), l.Language)
	return err
}

// run runs one program.
func (r *runner) run(run *call.Run) call.Done {
	began := cpuTime()
	m := newMachine(r, run)
	code, err := r.execute(m)
	done := call.Done{Code: code, CPU: (cpuTime() - began).Microseconds(),
		Memory: m.memory.peak, Denied: m.memory.denied}
	if err != nil {
		done.Fault, done.Text = true, err.Error()
	}
	return done
}

func (r *runner) execute(m *machine) (code uint8, err error) {
	defer m.memory.Free()
	ctx := m.context()
	e, err := r.engine(ctx, m.run.Language)
	if err != nil {
		return 0, err
	}
	return e.run(ctx, m)
}

// engine returns the interpreter of a language, and loads it at the first call.
func (r *runner) engine(ctx context.Context, l call.Language) (engine, error) {
	if e := r.engines[l]; e != nil {
		return e, nil
	}
	var e engine
	var err error
	switch l {
	case call.Python:
		e, err = newPython(ctx, r.cache, r.set.Python)
	case call.JavaScript:
		e, err = newJavaScript(ctx, r.cache, r.set.JavaScript)
	default:
		err = errors.New("the language is not supported")
	}
	if err != nil {
		return nil, err
	}
	r.engines[l] = e
	return e, nil
}
