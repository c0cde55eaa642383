package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

var testDrivers = []Driver{
	{Name: "native", Summary: "namespaces", Options: map[string]string{"colour": "what it looks like"}},
	{Name: "local", Summary: "nothing"},
}

// load runs Load on a file's text, variables and flags. Settings of this machine have no effect.
func load(t *testing.T, file string, environ []string, flags ...Flag) (*Config, error) {
	t.Helper()
	return loadWith(t, testDrivers, file, environ, flags...)
}

// loadWith is load in a build with other drivers.
func loadWith(t *testing.T, drivers []Driver, file string, environ []string, flags ...Flag) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Input{File: "c.yaml", Environ: append([]string{"HOME=/home/nobody"}, environ...), Flags: flags, Drivers: drivers})
}

func TestDefaults(t *testing.T) {
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Listen: "127.0.0.1:8080", PreviewDomain: "localhost", Console: true, E2BDomain: "localhost", Driver: "auto", Drivers: map[string]map[string]string{},
		Limits: Limits{
			Default: sandbar.Limits{Memory: 256 << 20, CPUs: sandbar.Unlimited, CPUShares: 512, PIDs: 128, Inodes: 65536,
				Files: 1024, Timeout: 30 * time.Second, Output: 1 << 20},
			Min: sandbar.Limits{Memory: 16 << 20, CPUs: 0.01, CPUShares: 2, PIDs: 4, Disk: 64 << 10, Inodes: 16, Files: 16, Timeout: time.Millisecond},
			Max: sandbar.Limits{Memory: 1 << 30, CPUShares: 262144, PIDs: 4096, Disk: 4 << 30, Inodes: 1 << 20, Files: 65536,
				Timeout: 300 * time.Second, Output: 64 << 20},
		},
		SpeculationMitigations: "on",
		MaxConnections:         4096, MaxSandboxes: 64, MaxQueue: 1024, QueueTimeout: time.Minute, MaxCode: 1 << 20, MaxEnv: 64 << 10, MaxFile: 16 << 30,
		Grace: 500 * time.Millisecond, IdleTimeout: 10 * time.Minute, MaxLifetime: 24 * time.Hour, ReplayBytes: 1 << 20, KeepFinished: 64,
		Paused: PausedSandboxes{Max: 64, MaxBytes: 16 << 30, ClientShare: 25},
		Code:   Code{MaxOutput: 10 << 10, BlockedImports: []string{"os", "subprocess", "shutil", "socket", "pathlib"}, Store: "never", Artifacts: "artifacts"},
		Fathom: Fathom{DisconnectGrace: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxPerConnection: 256, MaxStdin: 1 << 20},
		Executor: Executor{MaxJSON: 16 << 20, MaxContent: 16 << 30, MaxOutput: 64 << 20, KeepLines: 10000, KeepBytes: 8 << 20, KeepFinished: 64, Heartbeat: 10 * time.Second,
			StallTimeout: 5 * time.Minute, MaxConnections: 1024},
		Templates: Templates{Auto: true}, TemplatesMemory: 512 << 20,
		Log: Log{Level: "info", Format: "text"}, Audit: Audit{MaxSize: 64 << 20, Keep: 10}, ShutdownTimeout: 20 * time.Second,
		Images:  Images{AutoInstall: true, MaxBytes: 20 << 30, MaxEntries: 1_000_000, Timeout: 30 * time.Minute},
		Network: Network{Outbound: true, MaxConnections: 1024, MaxBytes: sandbar.Unlimited, PortsDenied: []uint16{25}},
		III: III{Open: true, Sandboxes: true, Presets: PresetsAuto, Worker: IIIWorker{Name: "iii-sandbox"}, AutoInstall: true, DefaultIdleTimeoutSecs: 300, MaxConcurrentSandboxes: 32,
			MaxConcurrentExecPerSandbox: 4, MaxExecTimeoutMS: 300_000, DefaultCPUs: 1, DefaultMemoryMB: 512,
			PerImageCaps: map[string]ImageCaps{}, CustomImages: map[string]string{}},
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "StateDir", "RuntimeDir")); diff != "" {
		t.Error(diff)
	}
	for _, f := range c.fields() {
		if o := c.Origin(f.path); o != "" {
			t.Errorf("%s has its default and the origin %q", f.path, o)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := "listen: 127.0.0.1:1\nlimits:\n  default:\n    memory: 100MiB\n    pids: 50\nlog: {level: debug}\n"
	c, err := load(t, file, []string{"SANDBAR_LISTEN=127.0.0.1:2", "SANDBAR_LIMITS_DEFAULT_MEMORY=200MiB"},
		Flag{"listen", "--listen", "127.0.0.1:3"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{
		"listen":                {"127.0.0.1:3", "--listen"},
		"limits.default.memory": {"200MiB", "SANDBAR_LIMITS_DEFAULT_MEMORY"},
		"limits.default.pids":   {"50", "c.yaml:5"},
		"log.level":             {"debug", "c.yaml:6"},
		"log.format":            {"text", ""},
	} {
		for _, f := range c.fields() {
			if got := [2]string{f.value.String(), c.Origin(path)}; f.path == path && got != want {
				t.Errorf("%s = %q, want %q", path, got, want)
			}
		}
	}
}

// Every setting can be given by its variable, and its printed value reads back.
func TestEveryVariable(t *testing.T) {
	defaults, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	special := map[string]string{"token": "t", "token_file": "/t", "tls.cert": "c", "tls.key": "k", "allowed_hosts": "a.example,10.0.0.1",
		"allowed_origins": "https://a.example", "url": "http://127.0.0.1:1", "state_dir": "/s", "runtime_dir": "/r",
		"languages": "- {name: ruby, file: main.rb, command: [ruby]}",
		"clients":   "- {name: ci, token_file: /t}", "iii.worker.engine": "ws://e:1", "iii.worker.token": "t", "peers.addresses": "http://10.0.0.2:8080", "peers.ca": "/c"}
	for _, f := range defaults.fields() {
		t.Run(f.path, func(t *testing.T) {
			value, ok := special[f.path]
			if !ok {
				value = f.value.String()
			}
			environ := []string{f.env() + "=" + value}
			if f.path == "tls.cert" || f.path == "tls.key" {
				environ = []string{"SANDBAR_TLS_CERT=c", "SANDBAR_TLS_KEY=k"}
			}
			c, err := load(t, "", environ)
			if err != nil {
				t.Fatal(err)
			}
			if c.Origin(f.path) != f.env() {
				t.Errorf("origin is %q", c.Origin(f.path))
			}
		})
	}
}

func TestBadSettings(t *testing.T) {
	for _, tc := range []struct {
		name    string
		file    string
		environ []string
		flags   []Flag
		want    string // the whole error; several lines for several errors
	}{
		{name: "unknown setting, near", file: "\nlisen: a\n",
			want: `c.yaml:2: "lisen" is not a setting (did you mean listen?)`},
		{name: "unknown setting, far", file: "log:\n  banana: a\n",
			want: `c.yaml:2: "log.banana" is not a setting (valid here: format, level)`},
		{name: "unknown section", file: "limits:\n  defualt: {memory: 1GiB}\n",
			want: `c.yaml:2: "limits.defualt" is not a setting (did you mean default?)`},
		{name: "setting twice", file: "driver: native\ndriver: local\n",
			want: `c.yaml:2: "driver" stands twice; first in line 1 (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "not a size", file: "limits:\n  default:\n    memory: 12 parsecs\n",
			want: `c.yaml:3: limits.default.memory: "12 parsecs" has no known unit of size (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)`},
		{name: "size out of range", file: "max_code: 1TiB\n",
			want: `c.yaml:1: max_code: "1TiB" is out of range (allowed: a size from 1B to 64MiB)`},
		{name: "size is a list", file: "max_code: [1]\n",
			want: `c.yaml:1: max_code: the value is a list where one value is needed (allowed: a size from 1B to 64MiB)`},
		{name: "no value", file: "max_code:\n",
			want: `c.yaml:1: max_code: the value is missing; remove the line to have the default (allowed: a size from 1B to 64MiB)`},
		{name: "duration without unit", file: "grace: 5.5\n",
			want: `c.yaml:1: grace: "5.5" has no unit of time (allowed: a duration from 1ms to 5m, such as 30s)`},
		{name: "negative duration", file: "grace: -5s\n",
			want: `c.yaml:1: grace: "-5s" is negative (allowed: a duration from 1ms to 5m, such as 30s)`},
		{name: "not a number", file: "max_sandboxes: many\n",
			want: `c.yaml:1: max_sandboxes: "many" is not a whole number (allowed: a whole number from 1 to 100000, such as 100)`},
		{name: "zero", file: "max_sandboxes: 0\n",
			want: `c.yaml:1: max_sandboxes: "0" is out of range (allowed: a whole number from 1 to 100000, such as 100)`},
		{name: "not a number of processors", file: "limits: {max: {cpus: .nan}}\n",
			want: `c.yaml:1: limits.max.cpus: ".nan" is not a number of processors (allowed: a number from 0.01 to 4096, such as 0.5, or unlimited, or host)`},
		{name: "number for text", file: "driver: 7\n",
			want: `c.yaml:1: driver: "7" is not text; put it in quotes if text is meant (allowed: auto or the name of a driver; "sandbar doctor" lists them)`},
		{name: "yes for true", file: "allow_degraded: yes\n",
			want: `c.yaml:1: allow_degraded: "yes" is text (allowed: true or false)`},
		{name: "log level", file: "log:\n  level: loud\n",
			want: `c.yaml:2: log.level: "loud" is not known (allowed: debug, info, warn or error)`},
		{name: "listen without port", file: "listen: localhost\n",
			want: `c.yaml:1: listen: "localhost" is not HOST:PORT (allowed: HOST:PORT with a port from 0 to 65535, or unix:/absolute/path)`},
		{name: "listen with wrong port", flags: []Flag{{"listen", "--listen", "127.0.0.1:99999"}},
			want: `--listen: "127.0.0.1:99999" has no port from 0 to 65535 (allowed: HOST:PORT with a port from 0 to 65535, or unix:/absolute/path)`},
		{name: "relative socket", flags: []Flag{{"listen", "--listen", "unix:s"}},
			want: `--listen: "unix:s" is not an absolute path of a socket (allowed: HOST:PORT with a port from 0 to 65535, or unix:/absolute/path)`},
		{name: "host with port", file: "allowed_hosts:\n  - a.example\n  - b.example:80\n",
			want: `c.yaml:3: allowed_hosts: "b.example:80" is not a host name (allowed: a list of host names or addresses without port)`},
		{name: "host list is a map", file: "allowed_hosts: {a: b}\n",
			want: `c.yaml:1: allowed_hosts: the value is a map where a list is needed (allowed: a list of host names or addresses without port)`},
		{name: "origin with path", environ: []string{"SANDBAR_ALLOWED_ORIGINS=https://a.example/x"},
			want: `SANDBAR_ALLOWED_ORIGINS: "https://a.example/x" is not an origin (allowed: a list of origins such as https://app.example.com)`},
		{name: "empty token", environ: []string{"SANDBAR_TOKEN="},
			want: `SANDBAR_TOKEN: the value is empty (allowed: 1 to 4096 visible ASCII characters)`},
		{name: "token with a space is not repeated", environ: []string{"SANDBAR_TOKEN=hush hush"},
			want: `SANDBAR_TOKEN: the value is not a token (allowed: 1 to 4096 visible ASCII characters)`},
		{name: "token of digits is not repeated", file: "token: 12345\n",
			want: `c.yaml:1: token: the value is not text; put it in quotes if text is meant (allowed: 1 to 4096 visible ASCII characters)`},
		{name: "token twice", file: "token: a\n", environ: []string{"SANDBAR_TOKEN_FILE=/t"},
			want: `token (c.yaml:1) and token_file (SANDBAR_TOKEN_FILE) are both set (set one of them)`},
		{name: "certificate without key", file: "tls:\n  cert: c.pem\n",
			want: `tls.cert (c.yaml:2) is set without tls.key (set both, or neither for plain HTTP)`},
		{name: "key without certificate", file: "tls:\n  key: c.pem\n",
			want: `tls.key (c.yaml:2) is set without tls.cert (set both, or neither for plain HTTP)`},
		{name: "open metrics for all", file: "listen: 0.0.0.0:80\nmetrics_open: true\n",
			want: `metrics_open needs a listener on loopback, and listen (0.0.0.0:80, c.yaml:1) is not on it (give the token to whatever collects the metrics, or listen on 127.0.0.1)`},
		{name: "default above maximum", file: "limits: {default: {memory: 2GiB}}\n",
			want: `limits.default.memory (2GiB, c.yaml:1) is above limits.max.memory (1GiB, the default) (change one of them)`},
		{name: "unlimited default above maximum", file: "limits: {default: {timeout: unlimited}}\n",
			want: `limits.default.timeout (unlimited, c.yaml:1) is above limits.max.timeout (5m, the default) (change one of them)`},
		{name: "minimum above default", file: "limits: {min: {pids: 500}}\n",
			want: `limits.min.pids (500, c.yaml:1) is above limits.default.pids (128, the default) (change one of them)`},
		{name: "unlimited minimum", file: "limits: {min: {pids: unlimited}}\n",
			want: `c.yaml:1: limits.min.pids: "unlimited" is not a whole number (allowed: a whole number from 1 to 1099511627776, such as 100)`},
		{name: "unknown driver", file: "driver: docker\n",
			want: `c.yaml:1: the driver "docker" is not part of this build (allowed: auto, native, local)`},
		{name: "options of an unknown driver", file: "drivers:\n  docker: {a: b}\n",
			want: `c.yaml:1: drivers: the driver "docker" is not part of this build (allowed: native, local)`},
		{name: "unknown option, near", file: "drivers: {native: {color: red}}\n",
			want: `c.yaml:1: drivers.native: there is no option "color" (did you mean colour?)`},
		{name: "option of a driver without any", file: "drivers: {local: {color: red}}\n",
			want: `c.yaml:1: drivers.local: there is no option "color" (the driver local has no options)`},
		{name: "option is a list", file: "drivers:\n  native:\n    colour: [red]\n",
			want: `c.yaml:3: drivers: "colour" is a list where one value is needed (allowed: a map of drivers, each a map of its options)`},
		{name: "language without command", file: "languages:\n  - name: ruby\n    file: main.rb\n",
			want: `c.yaml:2: languages: the value holds a faulty entry: language "ruby": command is empty (allowed: a list of maps with name, file, command and optionally aliases and env)`},
		{name: "unknown part of a language", file: "languages:\n  - name: ruby\n    comand: [ruby]\n",
			want: `c.yaml:3: languages: "comand" is not a part of a language; did you mean "command"? (allowed: a list of maps with name, file, command and optionally aliases and env)`},
		{name: "language is text", file: "languages: [ruby]\n",
			want: `c.yaml:1: languages: the value holds text where a language is needed, a map (allowed: a list of maps with name, file, command and optionally aliases and env)`},
		{name: "language variable is not YAML", environ: []string{"SANDBAR_LANGUAGES=[{"},
			want: `SANDBAR_LANGUAGES: "[{" is not YAML: did not find expected node content (allowed: a list of maps with name, file, command and optionally aliases and env)`},
		{name: "relative directory", file: "state_dir: here\n",
			want: `c.yaml:1: state_dir: "here" is not an absolute path (allowed: an absolute path)`},
		{name: "control characters", file: `driver: "a\eb"` + "\n",
			want: `c.yaml:1: driver: "a\x1bb" has control characters (allowed: auto or the name of a driver; "sandbar doctor" lists them)`},
		{name: "unknown variable, near", environ: []string{"SANDBAR_LISTN=x"},
			want: `environment variable SANDBAR_LISTN is not a setting of Sandbar (did you mean SANDBAR_LISTEN?)`},
		{name: "unknown variable, far", environ: []string{"SANDBAR_FAVOURITE_COLOUR=x"},
			want: `environment variable SANDBAR_FAVOURITE_COLOUR is not a setting of Sandbar (unset it; "sandbar serve --print-config" lists all settings)`},
		{name: "unknown variable, harmful", environ: []string{"SANDBAR_\x1b[31m=x"},
			want: `environment variable "SANDBAR_\x1b[31m" is not a setting of Sandbar (unset it; "sandbar serve --print-config" lists all settings)`},
		{name: "long value is cut", environ: []string{"SANDBAR_DRIVER=" + strings.Repeat("a", 100)},
			want: `SANDBAR_DRIVER: "` + strings.Repeat("a", 60) + `"… (100 bytes) is not a name (allowed: auto or the name of a driver; "sandbar doctor" lists them)`},
		{name: "not YAML", file: "a: [\n",
			want: `c.yaml:2: did not find expected node content (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "not UTF-8", file: "driver: \xff\n",
			want: `c.yaml: invalid leading UTF-8 octet (value: 255) (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "two documents", file: "driver: native\n---\ndriver: local\n",
			want: `c.yaml:2: there is a second document; only one is read (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "a list", file: "- driver\n",
			want: `c.yaml:1: the document is a list where a map of settings is needed (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "section is text", file: "limits:\n  max: lots\n",
			want: `c.yaml:2: "limits.max" is text where a map of settings is needed (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "alias", file: "driver: &a native\nlisten: *a\n",
			want: `c.yaml:1: anchors and aliases are not read here; write the value out (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "key is a number", file: "7: a\n",
			want: `c.yaml:1: a key is a number where a name is needed (a configuration is one YAML document; "sandbar serve --print-config" prints a complete one)`},
		{name: "too large", file: "#" + strings.Repeat("x", 1<<20) + "\n",
			want: `configuration file c.yaml: is larger than 1 MiB (name a YAML file of at most 1 MiB that can be read)`},
		{name: "several at once", file: "grace: x\n", environ: []string{"SANDBAR_MAX_QUEUE=x"}, flags: []Flag{{"driver", "--driver", ""}},
			want: `c.yaml:1: grace: "x" is not a duration (allowed: a duration from 1ms to 5m, such as 30s)
SANDBAR_MAX_QUEUE: "x" is not a whole number (allowed: a whole number from 1 to 1000000, such as 100)
--driver: "" is not a name (allowed: auto or the name of a driver; "sandbar doctor" lists them)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.file, tc.environ, tc.flags...)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if sandbar.CodeOf(err) != sandbar.Invalid {
				t.Errorf("code is %q", sandbar.CodeOf(err))
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(Input{File: filepath.Join(dir, "none.yaml")})
	if !errors.Is(err, os.ErrNotExist) || sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a named file that is missing: %v", err)
	}
	_, err = Load(Input{Environ: []string{"SANDBAR_CONFIG=" + filepath.Join(dir, "none.yaml")}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file named by the variable that is missing: %v", err)
	}
	_, err = Load(Input{Environ: []string{"SANDBAR_CONFIG="}})
	if err == nil || !strings.Contains(err.Error(), "SANDBAR_CONFIG is set but empty") {
		t.Errorf("an empty SANDBAR_CONFIG: %v", err)
	}
	if _, err = Load(Input{File: dir}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a directory: %v", err)
	}
}

// Kubernetes sets these in every container of a namespace with a service called "sandbar"; the
// driver local sets the last one in its sandboxes.
func TestForeignVariablesAreIgnored(t *testing.T) {
	_, err := load(t, "", []string{"SANDBAR_SERVICE_HOST=10.0.0.1", "SANDBAR_SERVICE_PORT=80", "SANDBAR_SERVICE_PORT_HTTP=80",
		"SANDBAR_PORT=tcp://10.0.0.1:80", "SANDBAR_PORT_80_TCP=tcp://10.0.0.1:80", "SANDBAR_PORT_80_TCP_PROTO=tcp",
		"SANDBAR_PORT_80_TCP_PORT=80", "SANDBAR_PORT_80_TCP_ADDR=10.0.0.1", "SANDBAR_LOCAL=x"})
	if err != nil {
		t.Error(err)
	}
}

func TestLanguages(t *testing.T) {
	c, err := load(t, "languages:\n  - {name: ruby, aliases: [rb], file: main.rb, command: [ruby, '{file}'], env: {RUBYOPT: '-W0'}}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []lang.Language{{Name: "ruby", Aliases: []string{"rb"}, File: "main.rb", Command: []string{"ruby", "{file}"},
		Env: map[string]string{"RUBYOPT": "-W0"}}}
	if diff := cmp.Diff(want, c.Languages); diff != "" {
		t.Error(diff)
	}
	catalogue, err := c.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	if got := catalogue.Names(); !slices.Equal(got, []string{"elixir", "javascript", "python", "ruby", "shell"}) {
		t.Errorf("languages are %v", got)
	}
}

// The output of --print-config is a file with the same settings.
func TestPrintedConfigurationLoads(t *testing.T) {
	c, err := load(t, `
listen: "[::1]:0"
allowed_hosts: [a.example, 10.0.0.1]
drivers: {native: {colour: "red: #1"}}
limits: {max: {cpus: unlimited, timeout: unlimited}, default: {cpus: 0.5}}
idle_timeout: never
templates:
  - {language: python, image: tools, warm_imports: [numpy, a.b], min: 1, max: 4, memory: 64MiB, cpus: 0.5, fork: false}
  - {}
clients:
  - {name: ci, token_file: /t, max_sandboxes: 2, max_queue: 3, rate: 0.5, burst: 4}
  - {name: b, token_file: /u}
languages:
  - {name: ruby, aliases: [rb], file: main.rb, command: [ruby, '{file}'], env: {RUBYOPT: '-W0'}}
state_dir: /s
runtime_dir: "/r \u00e9 \""
`, []string{"SANDBAR_TOKEN=hush"})
	if err != nil {
		t.Fatal(err)
	}
	printed := c.YAML()
	if strings.Contains(printed, "hush") {
		t.Error("the token is printed")
	}
	again, err := load(t, printed, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, printed)
	}
	if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "Token")); diff != "" {
		t.Error(diff)
	}
	for _, f := range c.fields() {
		if !strings.Contains(printed, f.env()) {
			t.Errorf("%s is not explained", f.path)
		}
	}
}

func TestPrintHidesSecretOptions(t *testing.T) {
	c, err := Load(Input{Environ: []string{"HOME=/h", "SANDBAR_CONFIG=/dev/null", "SANDBAR_DRIVERS={e2b: {api_key: hush, region: eu}}"}})
	if err != nil {
		t.Fatal(err)
	}
	if y := c.YAML(); strings.Contains(y, "hush") || !strings.Contains(y, "region: eu") {
		t.Error(y)
	}
}

func TestTableIsSound(t *testing.T) {
	paths, envs := map[string]bool{}, map[string]bool{}
	for _, f := range new(Config).fields() {
		if paths[f.path] || envs[f.env()] {
			t.Errorf("%s or its variable stands twice", f.path)
		}
		paths[f.path], envs[f.env()] = true, true
		if f.doc == "" || f.allowed == "" || !strings.HasSuffix(f.doc, ".") {
			t.Errorf("%s: the table lacks a sentence or what is allowed", f.path)
		}
		if notSettings.MatchString(f.env()) {
			t.Errorf("%s would be ignored", f.env())
		}
	}
	md := Markdown(testDrivers)
	for path := range maps.Keys(paths) {
		if !strings.Contains(md, "| `"+path+"` |") {
			t.Errorf("%s is not in the document", path)
		}
	}
}

func TestSetLimit(t *testing.T) {
	var l sandbar.Limits
	for name, text := range map[string]string{"memory": "1GiB", "cpus": "0.5", "cpu_shares": "100", "pids": "unlimited", "timeout": "1h", "output": "unlimited"} {
		if err := SetLimit(&l, name, "--x", text); err != nil {
			t.Error(err)
		}
	}
	want := sandbar.Limits{Memory: 1 << 30, CPUs: 0.5, CPUShares: 100, PIDs: -1, Timeout: time.Hour, Output: -1}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	err := SetLimit(&l, "memory", "--memory", "lots")
	if text0(err) != `--memory: "lots" is not a size (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)` {
		t.Error(err)
	}
	if e := sandbar.AsError(err); e.Field != "--memory" {
		t.Errorf("field is %q", e.Field)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("listen: 127.0.0.1:1\nlimits: {max: {cpus: host}}\n"))
	f.Add([]byte("languages: [{name: a, file: b, command: [c]}]\ndrivers: {native: {a: b}}"))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("<<: {a: b}\n? [1]\n: 2"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Input{File: path, Environ: []string{"HOME=/h"}})
		if err != nil {
			if sandbar.CodeOf(err) != sandbar.Invalid {
				t.Fatalf("an error that is not Invalid: %v", err)
			}
			return
		}
		if err := os.WriteFile(path, []byte(c.YAML()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Input{File: path, Environ: []string{"HOME=/h"}}); err != nil {
			t.Fatalf("accepted, but its print is not: %v", err)
		}
	})
}
