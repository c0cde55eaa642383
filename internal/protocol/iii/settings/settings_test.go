package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func with(f func(*Config)) Config {
	c := Default()
	f(&c)
	return c
}

func TestLoad(t *testing.T) {
	sample := with(func(c *Config) { c.ImageAllowlist = []string{"python", "node"} })
	for _, c := range []struct {
		name, text string
		want       Config
	}{
		{"nothing", "", Default()},
		{"null", "null\n", Default()},
		// docs/protocols.md, iii: "Sample Configuration".
		{"the sample", `
- name: iii-sandbox
  config:
    auto_install: true
    image_allowlist:
      - python
      - node
    default_idle_timeout_secs: 300
    max_concurrent_sandboxes: 32
    default_cpus: 1
    default_memory_mb: 512
`, sample},
		{"among other workers", `
port: 49134
workers:
  - name: iii-http
    config: {port: 3111}
  - name: iii-sandbox
    config: {image_allowlist: [python, node]}
`, sample},
		{"a map of workers", `
engine:
  workers:
    iii-http: {}
    iii-sandbox:
      image_allowlist: [python, node]
`, sample},
		{"a map with config", "iii-sandbox: {config: {image_allowlist: [python, node]}}", sample},
		{"the block alone", "image_allowlist: [python, node]", sample},
		{"a block without settings", "- name: iii-sandbox\n", Default()},
		{"a block of null", "- name: iii-sandbox\n  config:\n", Default()},
		{"unknown keys", "image_allowlist: [python, node]\nsomething: {else: 1}\n", sample},
		{"everything", `
auto_install: false
image_allowlist: [app]
default_idle_timeout_secs: 5
max_concurrent_sandboxes: 2
max_concurrent_exec_per_sandbox: 0
max_exec_timeout_ms: 1000
default_cpus: 2
default_memory_mb: 64
per_image_caps: {app: {max_cpus: 2}}
custom_images: {app: "ghcr.io/acme/app:1"}
`, Config{ImageAllowlist: []string{"app"}, DefaultIdleTimeoutSecs: 5, MaxConcurrentSandboxes: 2, MaxExecTimeoutMS: 1000,
			DefaultCPUs: 2, DefaultMemoryMB: 64, PerImageCaps: map[string]Caps{"app": {MaxCPUs: 2}},
			CustomImages: map[string]string{"app": "ghcr.io/acme/app:1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Load([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ text, field, says string }{
		{"sandbox: {auto_install: true}", "sandbox", "older layout"},
		{"workers: []", "iii-sandbox", "no block"},
		{"just text", "iii-sandbox", "no block"},
		{"a: [", "iii-sandbox", "cannot be read"},
		{"iii-sandbox: 7", "iii-sandbox", "not a map"},
		{"default_cpus: many", "iii-sandbox", "cannot be read"},
		{"default_cpus: -1", "iii-sandbox", "cannot be read"},
		{"max_concurrent_sandboxes: -1", "max_concurrent_sandboxes", "negative"},
		{"max_concurrent_exec_per_sandbox: -1", "max_concurrent_exec_per_sandbox", "negative"},
		{"custom_images: {python: x}", "custom_images", "preset"},
		{`custom_images: {"": x}`, "custom_images", "without a name"},
		{`custom_images: {a: ""}`, "custom_images", "no OCI reference"},
	} {
		_, err := Load([]byte(c.text))
		e := sandbar.AsError(err)
		if e == nil || e.Code != sandbar.Invalid || e.Field != c.field || !strings.Contains(e.Error(), c.says) || e.Fix == "" {
			t.Errorf("%q: %#v", c.text, e)
		}
	}
}

func TestHolds(t *testing.T) {
	for text, want := range map[string]bool{
		"- name: iii-sandbox\n": true, "workers: [{name: iii-sandbox, config: 7}]": true, "iii-sandbox:": true, "default_cpus: many": true,
		"": false, "null": false, "{}": false, "a: [": false, "workers: []": false, "just text": false, "sandbox: {}": false,
	} {
		if got := Holds([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestCatalogue(t *testing.T) {
	c := with(func(c *Config) {
		c.CustomImages = map[string]string{"zz": "r/zz", "app": "r/app:1"}
		c.ImageAllowlist = []string{"node", "app", "unheard-of"}
	})
	var names []string
	for _, m := range c.Catalogue() {
		names = append(names, m.Name+" "+m.OCIRef+" "+string(m.Kind))
	}
	if diff := cmp.Diff([]string{"python docker.io/iiidev/python:latest preset", "node docker.io/iiidev/node:latest preset",
		"app r/app:1 custom", "zz r/zz custom"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"python", "zz", "unheard-of", "", "NODE"} {
		if _, ok := c.Find(name); ok {
			t.Errorf("%q is allowed", name)
		}
	}
	if m, ok := c.Find("app"); !ok || m.OCIRef != "r/app:1" {
		t.Errorf("app: %v, %v", m, ok)
	}
	if got := c.Allowed(); !slices.Equal(got, []string{"node", "app"}) {
		t.Errorf("allowed: %q", got)
	}
	for name, want := range map[string]string{"nod": "node", "node:20": "node", "docker.io/library/node:20": "node",
		"node@sha256:abc": "node", "python": "", "something else": ""} {
		if got := c.Suggest(name); got != want {
			t.Errorf("near %q is %q, want %q", name, got, want)
		}
	}
}

func TestTimesAreCut(t *testing.T) {
	for _, c := range []struct{ got, want time.Duration }{
		{Milliseconds(1500), 1500 * time.Millisecond},
		{Milliseconds(0), 0},
		{Milliseconds(1 << 63), longest},
		{Seconds(2), 2 * time.Second},
		{Seconds(1<<64 - 1), longest},
		{Config{MaxExecTimeoutMS: 5}.MaxExecTimeout(), 5 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if n := (Config{}).ExecSlots(); n != 1 {
		t.Errorf("%d slots", n)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("- name: iii-sandbox\n  config: {default_cpus: 1}\n"))
	f.Add([]byte("a: &x [*x]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := Load(data); err == nil {
			c.Catalogue()
			c.Allowed()
		}
	})
}
