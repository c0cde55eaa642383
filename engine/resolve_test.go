package engine_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := faulty.New()
		r := newRig(t, d, nil)
		if _, err := r.Run(t.Context(), script(""), nil); err != nil {
			t.Fatal(err)
		}
		want := sandbar.Spec{Image: "host", Driver: "faulty", Network: "none", IdleTimeout: 10 * time.Minute, Limits: sandbar.Limits{
			Memory: 256 << 20, CPUs: -1, CPUShares: 512, PIDs: 128, Disk: 128 << 20, Inodes: 65536, Files: 1024,
			Timeout: 30 * time.Second, Output: 1 << 20}}
		if diff := cmp.Diff(want, d.Specs()[0]); diff != "" {
			t.Errorf("what the driver got (-want +got):\n%s", diff)
		}
		def, lo, hi := r.Limits()
		if def != want.Limits || lo.Memory != 16<<20 || hi.Timeout != 300*time.Second || hi.CPUs < 1 {
			t.Errorf("%+v\n%+v\n%+v", def, lo, hi)
		}
		if r.Caps().Name != "faulty" || len(r.Languages().Names()) != 4 {
			t.Errorf("%+v, %v", r.Caps(), r.Languages().Names())
		}
	})
}

// The default of Disk is half of the sandbox's memory, within its range. A Disk that is set stays.
func TestDiskIsHalfOfMemory(t *testing.T) {
	type limits = sandbar.Limits
	const mib, none = 1 << 20, sandbar.Unlimited
	for _, tt := range []struct {
		what   string
		change func(*engine.Config)
		asked  limits
		want   int64
	}{
		{"the defaults", nil, limits{}, 128 * mib},
		{"more memory", nil, limits{Memory: 1024 * mib}, 512 * mib},
		{"little memory", nil, limits{Memory: 16 * mib}, 8 * mib},
		{"a disk that is asked for", nil, limits{Memory: 64 * mib, Disk: 64 * mib}, 64 * mib},
		{"another default of memory", func(c *engine.Config) { c.Default.Memory = 600 * mib }, limits{}, 300 * mib},
		{"a default of the disk", func(c *engine.Config) { c.Default.Disk = 200 * mib }, limits{Memory: 64 * mib}, 200 * mib},
		{"no bound of memory", func(c *engine.Config) { c.Default.Memory = none }, limits{}, 256 * mib},
		{"at least the least", func(c *engine.Config) { c.Min.Disk = 100 * mib }, limits{Memory: 64 * mib}, 100 * mib},
		{"at most the most", func(c *engine.Config) { c.Max.Disk = 100 * mib }, limits{Memory: 512 * mib}, 100 * mib},
	} {
		d := faulty.New()
		r := newRig(t, d, tt.change)
		j := script("")
		j.Spec.Limits = tt.asked
		if _, err := r.Run(t.Context(), j, nil); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if got := d.Specs()[0].Limits.Disk; got != tt.want {
			t.Errorf("%s: the disk is %d MiB, want %d", tt.what, got>>20, tt.want>>20)
		}
	}
	// A driver with its own defaults.
	main, other := named("main"), named("other")
	r := newRig(t, main, func(c *engine.Config) {
		c.ExtraDrivers = []engine.ExtraDriver{{Driver: other, Default: limits{Memory: 64 * mib}}}
	})
	j := script("")
	j.Spec.Driver = "other"
	if _, err := r.Run(t.Context(), j, nil); err != nil {
		t.Fatal(err)
	}
	if got := other.Specs()[0].Limits.Disk; got != 32*mib {
		t.Errorf("another driver: the disk is %d MiB, want 32", got>>20)
	}
}

// Every limit at and beyond both ends of its range.
func TestLimitsAreRanged(t *testing.T) {
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.Max.CPUs = 4 })
	l := func(f func(*sandbar.Limits)) sandbar.Limits { var x sandbar.Limits; f(&x); return x }
	type limits = sandbar.Limits
	for _, c := range []struct {
		limits limits
		field  string // "": no error
		says   string
	}{
		{limits{}, "", ""},
		{limits{Memory: 16 << 20}, "", ""},
		{limits{Memory: 1 << 30}, "", ""},
		{limits{Memory: 16<<20 - 1}, "memory", "16777215 bytes is out of range; allowed: 16 MiB to 1 GiB"},
		{limits{Memory: 1<<30 + 1}, "memory", "1073741825 bytes"},
		{limits{Memory: -1}, "memory", "-1"},
		{limits{Memory: -2}, "memory", "-2"},
		{limits{Memory: math.MaxInt64}, "memory", "9223372036854775807"},
		{limits{Memory: math.MinInt64}, "memory", "-9223372036854775808"},
		{limits{CPUs: 0.01}, "", ""},
		{limits{CPUs: 4}, "", ""},
		{limits{CPUs: -1}, "", ""}, // -1 is the default
		{limits{CPUs: 0.0099}, "cpus", "0.0099 is out of range; allowed: 0.01 to 4"},
		{limits{CPUs: 4.0001}, "cpus", "4.0001"},
		{limits{CPUs: -0.5}, "cpus", "-0.5"},
		{limits{CPUs: math.NaN()}, "cpus", "NaN"},
		{limits{CPUs: math.Inf(1)}, "cpus", "Inf"},
		{limits{CPUs: math.Inf(-1)}, "cpus", "Inf"},
		{limits{CPUs: 1e308}, "cpus", "1000"},
		{limits{CPUs: math.SmallestNonzeroFloat64}, "cpus", "0.0000"},
		{limits{CPUShares: 1}, "cpu_shares", "2 to 262144"},
		{limits{CPUShares: 262145}, "cpu_shares", "262145"},
		{limits{PIDs: 3}, "pids", "4 to 4096"},
		{limits{PIDs: 4097}, "pids", "4097"},
		{limits{PIDs: -1}, "pids", "-1"},
		{limits{Disk: 1}, "disk", "64 KiB to 4 GiB"},
		{limits{Disk: 5 << 30}, "disk", "5 GiB"},
		{limits{Inodes: 15}, "inodes", "16 to 1048576"},
		{limits{Inodes: 1<<20 + 1}, "inodes", "1048577"},
		{limits{Files: 15}, "files", "16 to 65536"},
		{limits{Files: 65537}, "files", "65537"},
		{limits{Timeout: time.Millisecond}, "", ""},
		{limits{Timeout: 300 * time.Second}, "", ""},
		{limits{Timeout: time.Millisecond - 1}, "timeout", "999.999µs is out of range; allowed: 1ms to 5m0s"},
		{limits{Timeout: 300*time.Second + 1}, "timeout", "5m0.000000001s"},
		{limits{Timeout: math.MaxInt64}, "timeout", "2562047h"},
		{limits{Timeout: math.MinInt64}, "timeout", "-2562047h"},
		{limits{Timeout: -1}, "timeout", "-1ns"},
		{limits{Output: 1}, "", ""},
		{limits{Output: 64 << 20}, "", ""},
		{limits{Output: 64<<20 + 1}, "output", "0 bytes to 64 MiB"},
		{limits{Output: -1}, "output", "-1"},
		{l(func(x *limits) { x.Memory, x.PIDs = 1, 1 }), "memory", "memory"}, // the first error is returned
	} {
		job := script("")
		job.Spec.Limits = c.limits
		x, err := r.Admit(job)
		if err == nil {
			x.Cancel()
		}
		if c.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.limits, err)
			}
			continue
		}
		wantCode(t, err, sandbar.Invalid)
		if err == nil || sandbar.AsError(err).Field != "limits."+c.field || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.limits, err)
		}
	}
}

func TestJobsAreChecked(t *testing.T) {
	r := newRig(t, faulty.New(), nil)
	big := strings.Repeat("x", 1<<20)
	env := func(kv ...string) sandbar.Job {
		j := script("")
		j.Spec.Env = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			j.Spec.Env[kv[i]] = kv[i+1]
		}
		return j
	}
	with := func(j sandbar.Job, f func(*sandbar.Job)) sandbar.Job { f(&j); return j }
	for _, c := range []struct {
		name  string
		job   sandbar.Job
		code  sandbar.Code // "": no error
		field string
	}{
		{"nothing at all", sandbar.Job{}, sandbar.Invalid, "args"},
		{"empty code", script(""), "", ""},
		{"code with NUL and bad UTF-8", script("# \x00\xff"), "", ""},
		{"code of the most", script("#" + big[1:]), "", ""},
		{"code too large", script("#" + big), sandbar.TooLarge, "code"},
		{"code without a language", sandbar.Job{Code: "x"}, sandbar.Invalid, "language"},
		{"args without a language", sandbar.Job{Args: []string{"x"}, Cmd: cmd("exit", "0")}, sandbar.Invalid, "language"},
		{"language and command", sandbar.Job{Language: "python", Cmd: cmd("exit", "0")}, sandbar.Invalid, "language"},
		{"language and directory", sandbar.Job{Language: "python", Cmd: sandbar.Cmd{Dir: "/"}}, sandbar.Invalid, "language"},
		{"unknown language", sandbar.Job{Language: "cobol"}, sandbar.Unsupported, "language"},
		{"language alias", sandbar.Job{Language: "js"}, "", ""},
		{"empty program", command(""), sandbar.Invalid, "args"},
		{"NUL in an argument", command("exit", "\x00"), sandbar.Invalid, "args"},
		{"NUL in a language's argument", with(script(""), func(j *sandbar.Job) { j.Args = []string{"\x00"} }), sandbar.Invalid, "args"},
		{"an argument of the most", command("print", "stdout", big[:128<<10-1]), "", ""},
		{"an argument too long", command("print", "stdout", big[:128<<10]), sandbar.TooLarge, "args"},
		{"arguments too many", command(strings.Split(strings.Repeat("x,", 1<<19), ",")...), sandbar.TooLarge, "args"},
		{"NUL in the directory", sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"exit"}, Dir: "\x00"}}, sandbar.Invalid, "dir"},
		{"directory too long", sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"exit"}, Dir: big}}, sandbar.TooLarge, "dir"},
		{"variable", env("A", "1"), "", ""},
		{"variable with an empty value", env("A", ""), "", ""},
		{"variable without a name", env("", "1"), sandbar.Invalid, "env"},
		{"variable with = in its name", env("A=B", "1"), sandbar.Invalid, "env"},
		{"variable with NUL in its name", env("A\x00", "1"), sandbar.Invalid, "env"},
		{"variable with NUL in its value", env("A", "\x00"), sandbar.Invalid, "env"},
		{"environment of the most", env("A", big[:64<<10-1]), "", ""},
		{"environment too large", env("A", big[:64<<10]), sandbar.TooLarge, "env"},
		{"environment too large in sum", env("A", big[:32<<10], "B", big[:32<<10]), sandbar.TooLarge, "env"},
		{"two environments too large in sum", sandbar.Job{Spec: env("A", big[:32<<10]).Spec,
			Cmd: sandbar.Cmd{Args: []string{"exit", "0"}, Env: map[string]string{"A": big[:32<<10]}}}, sandbar.TooLarge, "env"},
		{"network", with(script(""), func(j *sandbar.Job) { j.Spec.Network = "host" }), sandbar.Invalid, "network"},
		{"network outbound", with(script(""), func(j *sandbar.Job) { j.Spec.Network = "outbound" }), sandbar.Unsupported, "network"},
		{"network none", with(script(""), func(j *sandbar.Job) { j.Spec.Network = "none" }), "", ""},
		{"image with NUL", with(script(""), func(j *sandbar.Job) { j.Spec.Image = "a\x00" }), sandbar.Invalid, "image"},
		{"image too long", with(script(""), func(j *sandbar.Job) { j.Spec.Image = big }), sandbar.TooLarge, "image"},
		{"labels too large", with(script(""), func(j *sandbar.Job) { j.Spec.Labels = map[string]string{"a": big} }), sandbar.TooLarge, "labels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := r.Admit(c.job)
			if err == nil {
				x.Cancel()
			}
			wantCode(t, err, c.code)
			if err != nil && sandbar.AsError(err).Field != c.field {
				t.Errorf("field %q, want %q", sandbar.AsError(err).Field, c.field)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
	if s := r.Stats(); s.Active != 0 || s.Queued != 0 {
		t.Errorf("refused jobs have places: %+v", s)
	}
}

// The rule for limits that the driver cannot enforce, one combination per row.
func TestUnenforceableLimits(t *testing.T) {
	lacks := func(f func(*sandbar.Enforcements)) driver.Caps {
		c := faulty.FullCaps()
		f(&c.Enforced)
		return c
	}
	noMemory := lacks(func(e *sandbar.Enforcements) { e.Memory = sandbar.EnforcedNone })
	noPIDs := lacks(func(e *sandbar.Enforcements) { e.PIDs = "" })
	nothing := driver.Caps{Name: "weak"}
	noRest := lacks(func(e *sandbar.Enforcements) {
		e.CPUs, e.CPUShares, e.Disk, e.Inodes, e.Files = "none", "none", "none", "none", "none"
	})
	type limits = sandbar.Limits
	for _, c := range []struct {
		name     string
		caps     driver.Caps
		asked    limits
		operator bool // AllowDegraded of the configuration
		caller   bool // AllowDegraded of the Spec
		field    string
		got      func(limits) bool
	}{
		{"memory by default", noMemory, limits{}, false, false, "limits.memory", nil},
		{"memory asked for", noMemory, limits{Memory: 64 << 20}, false, false, "limits.memory", nil},
		{"memory, the caller accepts", noMemory, limits{Memory: 64 << 20}, false, true, "", func(l limits) bool { return l.Memory == 64<<20 }},
		{"memory, the operator accepts", noMemory, limits{}, true, false, "", func(l limits) bool { return l.Memory == 256<<20 }},
		{"pids by default", noPIDs, limits{}, false, false, "limits.pids", nil},
		{"the rest by default", noRest, limits{}, false, false, "", func(l limits) bool {
			return l.CPUs == -1 && l.CPUShares == 0 && l.Disk == -1 && l.Inodes == -1 && l.Files == -1 && l.Memory == 256<<20
		}},
		{"cpus asked for", noRest, limits{CPUs: 1}, false, false, "limits.cpus", nil},
		{"no cpus asked for", noRest, limits{CPUs: -1}, false, false, "", func(l limits) bool { return l.CPUs == -1 }},
		{"shares asked for", noRest, limits{CPUShares: 100}, false, false, "limits.cpu_shares", nil},
		{"disk asked for", noRest, limits{Disk: 1 << 20}, false, false, "limits.disk", nil},
		{"inodes asked for", noRest, limits{Inodes: 100}, false, false, "limits.inodes", nil},
		{"files asked for", noRest, limits{Files: 100}, false, false, "limits.files", nil},
		{"nothing at all, accepted", nothing, limits{Files: 100}, true, false, "", func(l limits) bool { return l.Files == 100 && l.Disk == 128<<20 }},
		{"timeout and output are the engine's", noRest, limits{Timeout: time.Second, Output: 1}, false, false, "", func(l limits) bool { return l.Timeout == time.Second }},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			d := faulty.New()
			d.Capabilities = c.caps
			r := newRig(t, d, func(cfg *engine.Config) { cfg.AllowDegraded, cfg.Max.CPUs = c.operator, 8 })
			job := script("")
			job.Spec.Limits, job.Spec.AllowDegraded = c.asked, c.caller
			_, err := r.Run(t.Context(), job, nil)
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				s := d.Specs()[0]
				if !c.got(s.Limits) || s.AllowDegraded != (c.operator || c.caller) {
					t.Errorf("the driver got %+v", s)
				}
				return
			}
			wantCode(t, err, sandbar.Unsupported)
			e := sandbar.AsError(err)
			if e.Field != c.field || !strings.Contains(e.Message, c.caps.Name) || !strings.Contains(e.Fix, "sandbar doctor") || !strings.Contains(e.Fix, "allow_degraded") {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	type limits = sandbar.Limits
	d := faulty.New()
	for _, c := range []struct {
		name  string
		cfg   engine.Config
		field string // "": no error
		check func(def, lo, hi limits) bool
	}{
		{"no driver", engine.Config{}, "-", nil},
		{"negative places", engine.Config{Driver: d, MaxSandboxes: -1}, "max_sandboxes", nil},
		{"negative code", engine.Config{Driver: d, MaxCode: -1}, "max_code", nil},
		{"negative replay", engine.Config{Driver: d, ReplayBytes: -1}, "replay_bytes", nil},
		{"a default gives way to the operator's maximum", engine.Config{Driver: d, Max: limits{Memory: 64 << 20}}, "",
			func(def, lo, hi limits) bool {
				return def.Memory == 64<<20 && hi.Memory == 64<<20 && lo.Memory == 16<<20
			}},
		{"and so does the minimum", engine.Config{Driver: d, Max: limits{Memory: 8 << 20}}, "",
			func(def, lo, hi limits) bool { return def.Memory == 8<<20 && lo.Memory == 8<<20 }},
		{"a default gives way to the operator's minimum", engine.Config{Driver: d, Min: limits{Timeout: time.Minute}}, "",
			func(def, lo, hi limits) bool { return def.Timeout == time.Minute }},
		{"and so does the maximum", engine.Config{Driver: d, Min: limits{Timeout: time.Hour}}, "",
			func(def, lo, hi limits) bool { return def.Timeout == time.Hour && hi.Timeout == time.Hour }},
		{"no maximum", engine.Config{Driver: d, Max: limits{Memory: -1}}, "",
			func(def, lo, hi limits) bool { return def.Memory == 256<<20 && hi.Memory == -1 }},
		{"no limit by default", engine.Config{Driver: d, Default: limits{Output: -1}}, "",
			func(def, lo, hi limits) bool { return def.Output == -1 && hi.Output == 64<<20 }},
		{"default above the maximum", engine.Config{Driver: d, Default: limits{Memory: 2 << 30}}, "limits.memory", nil},
		{"default below the minimum", engine.Config{Driver: d, Default: limits{PIDs: 1}}, "limits.pids", nil},
		{"minimum above the maximum", engine.Config{Driver: d, Min: limits{Files: 100}, Max: limits{Files: 50}}, "limits.files", nil},
		{"no minimum", engine.Config{Driver: d, Min: limits{Files: -1}}, "limits.files", nil},
		{"negative", engine.Config{Driver: d, Default: limits{Disk: -7}}, "limits.disk", nil},
		{"not a number", engine.Config{Driver: d, Max: limits{CPUs: math.NaN()}}, "limits.cpus", nil},
		{"infinite", engine.Config{Driver: d, Max: limits{CPUs: math.Inf(1)}}, "limits.cpus", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := engine.New(c.cfg)
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				if def, lo, hi := e.Limits(); !c.check(def, lo, hi) {
					t.Errorf("%+v\n%+v\n%+v", def, lo, hi)
				}
				return
			}
			wantCode(t, err, sandbar.Invalid)
			if err != nil && c.field != "-" && sandbar.AsError(err).Field != c.field {
				t.Errorf("%v, field %q", err, sandbar.AsError(err).Field)
			}
		})
	}
}

// Even if the operator allows a larger environment, a string above the kernel's 128 KiB (execve(2))
// is refused before a driver gets it.
func TestOneVariableIsBoundedByTheKernel(t *testing.T) {
	r := newRig(t, faulty.New(), func(c *engine.Config) { c.MaxEnv = 1 << 20 })
	for n, code := range map[int]sandbar.Code{128<<10 - 3: "", 128<<10 - 2: sandbar.TooLarge} {
		job := script("")
		job.Spec.Env = map[string]string{"A": strings.Repeat("x", n)}
		x, err := r.Admit(job)
		if err == nil {
			x.Cancel()
		}
		wantCode(t, err, code)
	}
}

// A driver with Caps.Outbound gets the requested network, and no other network reaches a driver.
func TestNetwork(t *testing.T) {
	for asked, want := range map[sandbar.Network]sandbar.Network{
		"": sandbar.NetworkNone, sandbar.NetworkNone: sandbar.NetworkNone, sandbar.NetworkOutbound: sandbar.NetworkOutbound,
	} {
		inBubble(t, "asked for "+string(asked), func(t *testing.T) {
			d := faulty.New()
			d.Capabilities = faulty.FullCaps()
			d.Capabilities.Outbound = true
			r := newRig(t, d, func(*engine.Config) {})
			job := script("")
			job.Spec.Network = asked
			if _, err := r.Run(t.Context(), job, nil); err != nil {
				t.Fatal(err)
			}
			if got := d.Specs()[0].Network; got != want {
				t.Errorf("the driver was asked for network %q, want %q", got, want)
			}
		})
	}
}
