// Package doctor examines a host: which drivers work, which mechanism enforces each limit, what the
// kernel offers, and which languages a sandbox has.
//
// It reads files, and it creates one sandbox and runs a program in it, since a working program
// proves more than a table of kernel features.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Input is the input of Examine.
type Input struct {
	Version   string
	Factories []driver.Factory // strongest boundary first
	// Chosen is the driver to try; "" for the first one that works and has a boundary.
	Chosen string
	Host   func(driver string) driver.Host
	// Presets returns the state of the images python and node with a driver. If nil, the report has
	// none.
	Presets   func(context.Context, driver.Driver) []Preset
	Languages *lang.Catalogue
	// Measure makes drivers measure themselves, which can take minutes (driver.Inspector).
	Measure bool
	// NoTrial leaves out the sandbox and the interpreters: for a daemon, whose sandboxes prove more,
	// and whose machines are not for trials.
	NoTrial bool
}

// Report is the result of Examine. The JSON names are stable.
type Report struct {
	OK        bool       `json:"ok"` // a program ran with the chosen driver; without a trial: the driver works
	Version   string     `json:"version"`
	System    System     `json:"system"`
	Drivers   []Driver   `json:"drivers"`
	Driver    string     `json:"driver"` // the chosen one, "" if no driver works
	Kernel    []Feature  `json:"kernel"`
	Languages []Language `json:"languages"`
	Presets   []Preset   `json:"presets"`
	Sandbox   Trial      `json:"sandbox"`
}

// System describes the operating system and the hardware.
type System struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	UID    int    `json:"uid"`
	CPUs   int    `json:"cpus"`
}

// Driver is the state of one driver.
type Driver struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Finding
	Options map[string]string `json:"options"`
	// Facts are the states of what the driver depends on; empty for a driver that is no
	// driver.Inspector.
	Facts []driver.Fact `json:"facts"`
	// Alternatives are the driver's variants, such as the runtimes of oci; empty for a driver
	// without variants.
	Alternatives []Alternative `json:"alternatives"`
	// Unexamined: the driver was not opened, because it is not the chosen one (Factory.OnlyNamed).
	Unexamined bool `json:"unexamined,omitempty"`
}

// Alternative is the state of a driver with one value of an option.
type Alternative struct {
	Option string `json:"option"`
	Value  string `json:"value"`
	Finding
}

// Finding is whether a driver works on this host and, if so, what it enforces.
type Finding struct {
	Available bool                  `json:"available"`
	Problem   string                `json:"problem,omitempty"`
	Fix       string                `json:"fix,omitempty"`
	Boundary  driver.Boundary       `json:"boundary,omitempty"`
	Enforced  *sandbar.Enforcements `json:"enforced,omitempty"`

	OOMCounted       bool     `json:"oom_counted"`
	PrivateFiles     bool     `json:"private_files"`
	PrivateNetwork   bool     `json:"private_network"`
	PrivateProcesses bool     `json:"private_processes"`
	PrivateQuotas    bool     `json:"private_quotas"`
	Notes            []string `json:"notes"`
}

// Feature is a feature of the kernel.
type Feature struct {
	Name   string `json:"name"`
	State  string `json:"state"` // "yes", "no", "limited" or "unknown"
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// Language is a language of the catalogue and its interpreter in a sandbox.
type Language struct {
	Name        string `json:"name"`
	Interpreter string `json:"interpreter"`
	Available   bool   `json:"available"`
	Path        string `json:"path,omitempty"` // inside the sandbox
}

// Preset is the state of an image of the built-in catalogue.
type Preset struct {
	Name string `json:"name"`
	// Source is "installed", "host", "driver", "pull" or "missing".
	Source string `json:"source"`
	// Ref is the image's reference, or "host" for the host's own programs.
	Ref string `json:"oci_ref"`
}

// Trial is the result of creating one sandbox.
type Trial struct {
	OK      bool    `json:"ok"`
	TotalMS float64 `json:"total_ms,omitempty"` // creation, one program, removal
	OnceMS  float64 `json:"once_ms,omitempty"`  // a program in a sandbox made for it alone; 0: the driver has no faster way for that
	Problem string  `json:"problem,omitempty"`
	Fix     string  `json:"fix,omitempty"`
}

// Examine examines this host. It never fails; the report contains what does not work.
func Examine(ctx context.Context, in Input) Report {
	r := Report{
		Version:   in.Version,
		System:    System{OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernelRelease(), UID: os.Geteuid(), CPUs: runtime.NumCPU()},
		Kernel:    kernelFeatures(),
		Drivers:   []Driver{},
		Languages: []Language{},
		Presets:   []Preset{},
	}
	var chosen driver.Driver
	for _, f := range in.Factories {
		if f.OnlyNamed && f.Name != in.Chosen {
			r.Drivers = append(r.Drivers, Driver{Name: f.Name, Summary: f.Summary, Options: f.Options, Unexamined: true, Facts: []driver.Fact{}, Alternatives: []Alternative{},
				Finding: Finding{Problem: "not examined, because that would create objects outside of this host", Fix: "sandbar doctor --driver " + f.Name, Notes: []string{}}})
			continue
		}
		d, err := f.New(in.Host(f.Name))
		found := Driver{Name: f.Name, Summary: f.Summary, Options: f.Options, Finding: describe(d, err), Facts: []driver.Fact{}, Alternatives: alternatives(f, in.Host)}
		if err == nil {
			if i, ok := driver.As[driver.Inspector](d); ok {
				found.Facts = i.Inspect(ctx, in.Measure)
			}
		}
		if err == nil && chosen == nil && choose(in.Chosen, found) {
			chosen, r.Driver = d, found.Name
		} else if err == nil {
			found.close(d)
		}
		r.Drivers = append(r.Drivers, found)
	}
	if chosen == nil {
		r.Sandbox = noDriver(in.Chosen, r.Drivers)
		r.Languages = catalogue(in.Languages)
		return r
	}
	if in.Presets != nil {
		r.Presets = in.Presets(ctx, chosen)
	}
	if in.NoTrial {
		found := &r.Drivers[slices.IndexFunc(r.Drivers, func(d Driver) bool { return d.Name == r.Driver })]
		found.close(chosen)
		r.OK, r.Languages = true, catalogue(in.Languages)
		return r
	}
	r.try(ctx, chosen, in)
	r.OK = r.Sandbox.OK
	return r
}

func choose(asked string, d Driver) bool {
	if asked != "" {
		return d.Name == asked
	}
	return d.Boundary != driver.BoundaryNone
}

// alternatives opens the driver with each value of its option.
func alternatives(f driver.Factory, host func(string) driver.Host) []Alternative {
	out := []Alternative{}
	for _, v := range f.Alternatives.Values {
		h := host(f.Name)
		h.Options = maps.Clone(h.Options)
		if h.Options == nil {
			h.Options = map[string]string{}
		}
		h.Options[f.Alternatives.Option] = v
		d, err := f.New(h)
		a := Alternative{Option: f.Alternatives.Option, Value: v, Finding: describe(d, err)}
		if err == nil {
			a.close(d)
		}
		out = append(out, a)
	}
	return out
}

// close closes a driver after its examination.
func (f *Finding) close(d driver.Driver) {
	if err := closeDriver(d); err != nil {
		f.Notes = append(f.Notes, "it could not be closed: "+err.Error())
	}
}

func describe(d driver.Driver, err error) Finding {
	out := Finding{Notes: []string{}}
	if err != nil {
		out.Problem, out.Fix = split(err)
		return out
	}
	c := d.Caps()
	out.Available, out.Boundary, out.Enforced = true, c.Boundary, &c.Enforced
	out.PrivateQuotas = c.PrivateQuotas
	out.OOMCounted, out.PrivateFiles, out.PrivateNetwork, out.PrivateProcesses = c.OOMCounted, c.PrivateFiles, c.PrivateNetwork, c.PrivateProcesses
	out.Notes = append(out.Notes, c.Notes...)
	return out
}

// split divides an error into the problem and its fix.
func split(err error) (problem, fix string) {
	e := *sandbar.AsError(err)
	fix, e.Fix = e.Fix, ""
	return e.Error(), fix
}

func noDriver(asked string, drivers []Driver) Trial {
	for _, d := range drivers {
		if d.Name == asked || asked == "" && d.Problem != "" && !d.Unexamined {
			return Trial{Problem: "driver " + d.Name + " does not work here: " + d.Problem, Fix: d.Fix}
		}
	}
	return Trial{Problem: "no driver of this build isolates programs on " + runtime.GOOS, Fix: "use a Linux host"}
}

func closeDriver(d driver.Driver) error {
	if c, ok := driver.As[driver.Closer](d); ok {
		return c.Close()
	}
	return nil
}

// catalogue returns the languages without looking into a sandbox.
func catalogue(c *lang.Catalogue) []Language {
	out := []Language{}
	for _, name := range c.Names() {
		if l, err := c.Find(name); err == nil {
			out = append(out, Language{Name: name, Interpreter: l.Interpreter()})
		}
	}
	return out
}

// try creates one sandbox, runs a program in it, looks for the interpreters, and removes it.
func (r *Report) try(ctx context.Context, d driver.Driver, in Input) {
	r.Languages = catalogue(in.Languages)
	began := time.Now()
	var spent, once time.Duration
	err := withEngine(d, in.Languages, func(e *engine.Engine) error {
		sb, err := e.Create(ctx, sandbar.Spec{AllowDegraded: true})
		if err != nil {
			return err
		}
		if _, err := output(ctx, sb, "true"); err != nil {
			return errors.Join(err, e.Stop(ctx, sb.ID()))
		}
		if err := e.Stop(ctx, sb.ID()); err != nil {
			return err
		}
		spent = time.Since(began)
		if once, err = timeOnce(ctx, e, d); err != nil {
			return err
		}
		return r.lookForInterpreters(ctx, e)
	})
	if err != nil {
		r.Sandbox.Problem, r.Sandbox.Fix = split(err)
		return
	}
	r.Sandbox = Trial{OK: true, TotalMS: float64(spent.Microseconds()) / 1000, OnceMS: float64(once.Microseconds()) / 1000}
}

// timeOnce returns the time of the fastest of five executions whose sandbox is made for its one
// program; 0 if the driver has no way of its own for that. The first makes what later ones share.
func timeOnce(ctx context.Context, e *engine.Engine, d driver.Driver) (fastest time.Duration, err error) {
	spec := sandbar.Spec{AllowDegraded: true}
	if o, ok := driver.As[driver.OneShotter](d); !ok || !o.TakesOneShots(spec) {
		return 0, nil
	}
	fastest = math.MaxInt64
	for range 5 {
		began := time.Now()
		r, err := e.Run(ctx, sandbar.Job{Spec: spec, Cmd: sandbar.Cmd{Args: []string{"true"}}}, nil)
		if err == nil && (r.Outcome != sandbar.Exited || r.ExitCode != 0) {
			err = sandbar.Errorf(sandbar.Internal, "the program \"true\" ended as %s, exit code %d", r.Outcome, r.ExitCode)
		}
		if err != nil {
			return 0, err
		}
		fastest = min(fastest, time.Since(began))
	}
	return fastest, nil
}

// withEngine calls f with an engine over d, and then closes both.
func withEngine(d driver.Driver, languages *lang.Catalogue, f func(*engine.Engine) error) error {
	e, err := engine.New(engine.Config{Driver: d, Languages: languages, Logger: slog.New(slog.DiscardHandler), AllowDegraded: true})
	if err != nil {
		return errors.Join(err, closeDriver(d))
	}
	err = f(e)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, e.Shutdown(ctx))
}

// lookForInterpreters runs a shell in a sandbox to find the path of each interpreter.
func (r *Report) lookForInterpreters(ctx context.Context, e *engine.Engine) error {
	sb, err := e.Create(ctx, sandbar.Spec{AllowDegraded: true})
	if err != nil {
		return err
	}
	for i := range r.Languages {
		l := &r.Languages[i]
		out, err := output(ctx, sb, "sh", "-c", `command -v -- "$1"`, "sh", l.Interpreter)
		if err == nil {
			l.Available, l.Path = true, strings.TrimSpace(out)
		}
	}
	return e.Stop(ctx, sb.ID())
}

// output runs a program and returns its stdout. Any exit code but 0 is an error.
func output(ctx context.Context, sb *engine.Sandbox, args ...string) (string, error) {
	var out stdoutSink
	r, err := sb.Exec(ctx, sandbar.Cmd{Args: args}, nil, sandbar.Limits{Timeout: 20 * time.Second, Output: 64 << 10}, &out)
	if err != nil {
		return "", err
	}
	if r.Outcome != sandbar.Exited || r.ExitCode != 0 {
		return "", sandbar.Errorf(sandbar.Internal, "the program %s ended as %s, exit code %d", sandbar.Quote(args[0], 40), r.Outcome, r.ExitCode)
	}
	return out.stdout.String(), nil
}

// stdoutSink is a sink that collects stdout.
type stdoutSink struct{ stdout bytes.Buffer }

// Started implements engine.Sink.
func (k *stdoutSink) Started() {}

// Output implements engine.Sink.
func (k *stdoutSink) Output(c sandbar.Chunk) error {
	if c.Stream == sandbar.Stdout {
		k.stdout.Write(c.Data)
	}
	return nil
}
