package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestIII(t *testing.T) {
	c, err := load(t, `iii:
  listen: 127.0.0.1:49134
  open: false
  image_allowlist: [python, tools]
  default_cpus: 2
  per_image_caps: {python: {max_cpus: 2}}
  custom_images: {tools: ghcr.io/acme/tools:1}
  worker: {engine: "ws://engine:49134", name: sandboxes, token: abc}
`, []string{"SANDBAR_III_MAX_CONCURRENT_SANDBOXES=7", `SANDBAR_III_PER_IMAGE_CAPS={tools: {max_cpus: 1, max_memory_mb: 64}}`})
	if err != nil {
		t.Fatal(err)
	}
	want := III{Listen: "127.0.0.1:49134", Sandboxes: true, Presets: PresetsAuto, AutoInstall: true, ImageAllowlist: []string{"python", "tools"}, DefaultIdleTimeoutSecs: 300,
		MaxConcurrentSandboxes: 7, MaxConcurrentExecPerSandbox: 4, MaxExecTimeoutMS: 300_000, DefaultCPUs: 2, DefaultMemoryMB: 512,
		PerImageCaps: map[string]ImageCaps{"tools": {1, 64}}, CustomImages: map[string]string{"tools": "ghcr.io/acme/tools:1"},
		Worker: IIIWorker{Engine: "ws://engine:49134", Name: "sandboxes", Token: "abc"}}
	if diff := cmp.Diff(want, c.III); diff != "" {
		t.Error(diff)
	}
	printed := c.YAML()
	if strings.Contains(printed, "abc") || !strings.Contains(printed, "max_memory_mb: 64") {
		t.Errorf("printed:\n%s", printed)
	}
}

func TestIIIRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"listen: nowhere":                           "not HOST:PORT",
		"default_cpus: 0":                           "out of range",
		"max_concurrent_sandboxes: -1":              "max_concurrent_sandboxes",
		"per_image_caps: {python: {cpus: 1}}":       "max_cpus",
		"per_image_caps: {python: {max_cpus: all}}": "is not",
		"per_image_caps: 3":                         "a map is needed",
		"custom_images: {python: x}":                "taken",
		"custom_images: {host: x}":                  "taken",
		`custom_images: {a: ""}`:                    "no reference",
		"custom_images: {a: 1}":                     "not text",
		"worker: {engine: http://host}":             "iii engine",
		"worker: {engine: ws://user:pw@host}":       "iii engine",
		`worker: {name: ""}`:                        "not a name",
		"worker: {token: a, token_file: b}":         "both set",
		"image_allow: [python]":                     "image_allowlist",
	} {
		_, err := load(t, "iii:\n  "+text+"\n", nil)
		if sandbar.CodeOf(err) != sandbar.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Only a file of another program is read for its settings of iii; a file of Sandbar, or of neither,
// is not.
func TestForeign(t *testing.T) {
	foreign := func(data []byte) (*III, error) {
		switch {
		case strings.Contains(string(data), "wrong"):
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "iii-sandbox", Message: "it is wrong"}
		case strings.Contains(string(data), "iii-sandbox"):
			return &III{ImageAllowlist: []string{"python"}, DefaultCPUs: 3}, nil
		}
		return nil, nil
	}
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		text string
		cpus int64
		fail string
	}{
		{"- name: iii-sandbox\n", 3, ""},
		{"workers: [&a {name: iii-sandbox}]\n", 3, ""},
		{"a: 1\na: iii-sandbox\n", 3, ""},
		{"iii: {custom_images: {iii-sandbox: x/y}}\n", 1, ""},
		{"", 1, ""},
		{"workers: []\n", 0, "not a setting"},
		{"a: [\n", 0, "YAML"},
		{"- wrong\n", 0, "c.yaml: it is wrong"},
		{"wrong: true\nlisten: 127.0.0.1:1\n", 0, "not a setting"},
	} {
		if err := os.WriteFile("c.yaml", []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Input{File: "c.yaml", Environ: []string{"HOME=/home/nobody", "SANDBAR_III_DEFAULT_MEMORY_MB=9"}, Foreign: foreign})
		switch {
		case c.fail != "":
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%q: %v", c.text, err)
			}
		case err != nil:
			t.Errorf("%q: %v", c.text, err)
		case got.III.DefaultCPUs != c.cpus || got.III.DefaultMemoryMB != 9 || !got.III.Open || got.III.Worker.Name != "iii-sandbox":
			t.Errorf("%q: %+v", c.text, got.III)
		case c.cpus == 3 && got.Origin("iii.image_allowlist") != "c.yaml":
			t.Errorf("%q: origin %q", c.text, got.Origin("iii.image_allowlist"))
		}
	}
}

func TestEngineURL(t *testing.T) {
	for _, c := range []struct {
		set     string
		environ []string
		want    string
	}{
		{"", nil, "ws://127.0.0.1:49134"},
		{"", []string{"III_URL=ws://a:1"}, "ws://a:1"},
		{"", []string{"III_URL=ws://a:1", "III_ENGINE_URL=wss://b"}, "wss://b"},
		{"ws://c:1", []string{"III_URL=ws://a:1"}, "ws://c:1"},
		{"", []string{"III_URL=http://a"}, ""},
	} {
		i := III{Worker: IIIWorker{Engine: c.set}}
		got, err := i.EngineURL(c.environ)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q %q: %q, %v", c.set, c.environ, got, err)
		}
	}
}

func TestWorkerToken(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("t", []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		worker IIIWorker
		want   string
	}{{IIIWorker{}, ""}, {IIIWorker{Token: "x"}, "x"}, {IIIWorker{TokenFile: "t"}, "secret"}} {
		i := III{Worker: c.worker}
		if got, err := i.WorkerToken(); got != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c.worker, got, err)
		}
	}
	missing := III{Worker: IIIWorker{TokenFile: "none"}}
	if _, err := missing.WorkerToken(); sandbar.CodeOf(err) != sandbar.Invalid || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
