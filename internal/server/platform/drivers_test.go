package platform_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a test host: its drivers, and which of them work.
type host struct {
	made []string
	open map[string]*faulty.Driver
}

// factories returns drivers with these names; one with a "!" does not work.
func (h *host) factories(names ...string) []driver.Factory {
	h.open = map[string]*faulty.Driver{}
	var all []driver.Factory
	for _, n := range names {
		name, broken := strings.CutSuffix(n, "!")
		all = append(all, driver.Factory{Name: name, New: func(driver.Host) (driver.Driver, error) {
			if broken {
				return nil, sandbar.Errorf(sandbar.Unsupported, "%s is broken", name)
			}
			d := faulty.New()
			d.Capabilities.Name = name
			if name != "local" {
				d.Capabilities.Boundary = driver.BoundaryNamespaces
			} else {
				d.Capabilities.Enforced.Memory = sandbar.EnforcedNone
			}
			h.made, h.open[name] = append(h.made, name), d
			return d, nil
		}})
	}
	return all
}

func settings(t *testing.T, chosen string, allowed ...string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Input{Environ: []string{"HOME=/none", "SANDBAR_CONFIG=/dev/null",
		"SANDBAR_RUNTIME_DIR=" + filepath.Join(t.TempDir(), "run"), "SANDBAR_DRIVER=" + chosen}})
	if err != nil {
		t.Fatal(err)
	}
	c.AllowedDrivers = allowed
	return c
}

// "auto" selects the strongest boundary that needs no set-up, and never a driver without one. A
// named driver is opened or is an error.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		name    string
		ask     string
		allowed []string
		there   []string
		want    []string // the drivers of the host
		passed  []string
		says    string // the error's text; "" for none
	}{
		{"auto, native", "auto", nil, []string{"local", "docker", "wasm", "native"}, []string{"native"}, nil, ""},
		{"auto, wasm where native is broken", "auto", nil, []string{"native!", "docker", "wasm", "local"}, []string{"wasm"}, []string{"native"}, ""},
		{"auto, wasm where there is no native", "auto", nil, []string{"wasm", "local"}, []string{"wasm"}, nil, ""},
		{"auto, none that is broken", "auto", nil, []string{"native!", "wasm!", "docker", "local"}, nil, nil, "native is broken\nwasm is broken"},
		{"auto, none without a boundary", "auto", nil, []string{"local", "docker"}, nil, nil, "no driver of this build isolates programs"},
		{"named", "docker", nil, []string{"native", "docker", "local"}, []string{"docker"}, nil, ""},
		{"named, no boundary", "local", nil, []string{"native", "local"}, []string{"local"}, nil, ""},
		{"named and broken", "docker", nil, []string{"native", "docker!", "local"}, nil, nil, "docker is broken"},
		{"named and not there", "docker", nil, []string{"native", "local"}, nil, nil, `there is no driver "docker"`},
		{"allowed", "auto", []string{"local", "docker"}, []string{"native", "docker", "local"}, []string{"native", "local", "docker"}, nil, ""},
		{"allowed is what auto chose", "auto", []string{"native"}, []string{"native", "local"}, []string{"native"}, nil, ""},
		{"allowed and broken", "auto", []string{"local", "docker"}, []string{"native", "docker!", "local"}, []string{"native", "local"}, nil, "docker is broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h host
			ds, err := platform.OpenDrivers(settings(t, c.ask, c.allowed...), h.factories(c.there...), slog.New(slog.DiscardHandler))
			if diff := cmp.Diff(c.want, h.made); diff != "" {
				t.Errorf("the drivers that were made: %s", diff)
			}
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v; want %q", err, c.says)
				}
				for name, d := range h.open {
					if d.Counts().Closed != 1 {
						t.Errorf("%s was left open", name)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var passed []string
			for _, p := range ds.Skipped {
				passed = append(passed, p.Name)
			}
			if diff := cmp.Diff(c.passed, passed); diff != "" {
				t.Errorf("what was passed over: %s", diff)
			}
			if got := ds.First.Caps().Name; got != c.want[0] || len(ds.All()) != len(c.want) {
				t.Errorf("%s is the first of %d", got, len(ds.All()))
			}
			for _, name := range c.want {
				if got := ds.Caps(name).Name; got != name {
					t.Errorf("the Caps of %s are those of %s", name, got)
				}
			}
			if err := ds.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each driver has fitting defaults: a driver that cannot enforce memory gets no built-in memory
// limit, but keeps one that the operator has set.
func TestDefaultsOfDrivers(t *testing.T) {
	for name, set := range map[string]bool{"built in": false, "set": true} {
		t.Run(name, func(t *testing.T) {
			var h host
			cfg := settings(t, "native", "local")
			if set {
				var err error
				cfg, err = config.Load(config.Input{Environ: []string{"HOME=/none", "SANDBAR_CONFIG=/dev/null", "SANDBAR_RUNTIME_DIR=" + filepath.Join(t.TempDir(), "run"),
					"SANDBAR_DRIVER=native", "SANDBAR_ALLOWED_DRIVERS=local", "SANDBAR_LIMITS_DEFAULT_MEMORY=256MiB"}})
				if err != nil {
					t.Fatal(err)
				}
			}
			ds, err := platform.OpenDrivers(cfg, h.factories("native", "local"), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			e, err := platform.NewEngine(cfg, ds, slog.New(slog.DiscardHandler), nil)
			if err != nil {
				t.Fatal(err)
			}
			for ask, memory := range map[string]int64{"native": 256 << 20, "local": sandbar.Unlimited} {
				_, err := e.Run(t.Context(), sandbar.Job{Spec: sandbar.Spec{Driver: ask}, Cmd: sandbar.Cmd{Args: []string{"print", "stdout", "x"}}}, nil)
				if set && ask == "local" {
					if sandbar.CodeOf(err) != sandbar.Unsupported {
						t.Errorf("a limit that was set and is not held: %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := h.open[ask].Specs()[0].Limits.Memory; got != memory {
					t.Errorf("%s has %d bytes, want %d", ask, got, memory)
				}
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			for name, d := range h.open {
				if err := d.Leaks(); err != nil || d.Counts().Closed != 1 {
					t.Errorf("%s: %v, closed %d times", name, err, d.Counts().Closed)
				}
			}
		})
	}
}
