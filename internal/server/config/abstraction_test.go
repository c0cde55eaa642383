package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

// abstractionDrivers are drivers of a build that has docker and e2b.
var abstractionDrivers = append(slices.Clone(testDrivers), Driver{Name: "docker", Options: map[string]string{
	"image": "i", "network": "n", "cpus": "c", "memory": "m", "pull": "p"}}, Driver{Name: "e2b", Options: map[string]string{
	"api_key": "k", "domain": "d", "api_url": "a", "sandbox_url": "s"}})

// Every variable of the execution abstraction, its forms, and the settings that it changes.
func TestAbstractionVariables(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []string
		read    func(*Config) any
		want    any
	}{
		"type":                 {[]string{"SANDBOX_TYPE=local"}, func(c *Config) any { return c.Driver }, "local"},
		"type, any case":       {[]string{"SANDBOX_TYPE= Native "}, func(c *Config) any { return c.Driver }, "native"},
		"type, auto":           {[]string{"SANDBOX_TYPE=AUTO"}, func(c *Config) any { return c.Driver }, "auto"},
		"type, empty":          {[]string{"SANDBOX_TYPE="}, func(c *Config) any { return c.Driver }, "auto"},
		"type, docker":         {[]string{"SANDBOX_TYPE=docker"}, func(c *Config) any { return c.Driver }, "docker"},
		"timeout":              {[]string{"SANDBOX_TIMEOUT_SEC=5"}, func(c *Config) any { return c.Limits.Default.Timeout }, 5 * time.Second},
		"timeout, part of one": {[]string{"SANDBOX_TIMEOUT_SEC=0.25"}, func(c *Config) any { return c.Limits.Default.Timeout }, 250 * time.Millisecond},
		"timeout, for all":     {[]string{"SANDBOX_TIMEOUT_SEC=5"}, func(c *Config) any { return c.Code.Timeout }, 5 * time.Second},
		"timeout, for none":    {[]string{"SANDBAR_LIMITS_DEFAULT_TIMEOUT=5s"}, func(c *Config) any { return c.Code.Timeout }, time.Duration(0)},
		"timeout, default":     {nil, func(c *Config) any { return c.Limits.Default.Timeout }, 30 * time.Second},
		"output":               {[]string{"SANDBOX_MAX_OUTPUT_KB=3"}, func(c *Config) any { return c.Code.MaxOutput }, int64(3 << 10)},
		"output, no cut":       {[]string{"SANDBOX_MAX_OUTPUT_KB=0"}, func(c *Config) any { return c.Code.MaxOutput }, int64(sandbar.Unlimited)},
		"languages":            {[]string{"SANDBOX_SUPPORTED_LANGUAGES=Python, js"}, languageNames, []string{"javascript", "python"}},
		"languages, default":   {nil, languageNames, []string{"elixir", "javascript", "python", "shell"}},
		"imports":              {[]string{"SANDBOX_BLOCK_DANGEROUS_IMPORTS=True"}, func(c *Config) any { return c.Code.BlockImports }, true},
		"imports, one":         {[]string{"SANDBOX_BLOCK_DANGEROUS_IMPORTS=1"}, func(c *Config) any { return c.Code.BlockImports }, true},
		"imports, no":          {[]string{"SANDBOX_BLOCK_DANGEROUS_IMPORTS=no"}, func(c *Config) any { return c.Code.BlockImports }, false},
		"store":                {[]string{"SANDBOX_STORE_CODE=ON_ERROR"}, func(c *Config) any { return c.Code.Store }, "on_error"},
		"docker":               {[]string{"DOCKER_IMAGE=python:3.12", "DOCKER_NETWORK_ENABLED=TRUE", "DOCKER_CPU_LIMIT=1.5", "DOCKER_MEMORY_LIMIT=512m"}, dockerOptions, map[string]string{"image": "python:3.12", "network": "bridge", "cpus": "1.5", "memory": "512MiB"}},
		"docker, no network":   {[]string{"DOCKER_NETWORK_ENABLED=0"}, dockerOptions, map[string]string{"network": "none"}},
		"docker chosen, limits": {[]string{"SANDBOX_TYPE=docker", "DOCKER_CPU_LIMIT=0.5", "DOCKER_MEMORY_LIMIT=512m"},
			func(c *Config) any { return []any{c.Limits.Default.CPUs, c.Limits.Default.Memory, c.Code.Network} }, []any{0.5, int64(512 << 20), false}},
		"docker chosen, network": {[]string{"SANDBOX_TYPE=docker", "DOCKER_NETWORK_ENABLED=true"}, func(c *Config) any { return c.Code.Network }, true},
		"docker not chosen": {[]string{"SANDBOX_TYPE=local", "DOCKER_CPU_LIMIT=0.5", "DOCKER_MEMORY_LIMIT=512m", "DOCKER_NETWORK_ENABLED=true"},
			func(c *Config) any { return []any{c.Limits.Default.CPUs, c.Limits.Default.Memory, c.Code.Network} }, []any{float64(sandbar.Unlimited), int64(256 << 20), false}},
		"docker chosen, half a processor": {[]string{"SANDBOX_TYPE=docker"}, func(c *Config) any { return c.Limits.Default.CPUs }, 0.5},
		"docker chosen, another number":   {[]string{"SANDBOX_TYPE=docker", "SANDBAR_LIMITS_DEFAULT_CPUS=1.5"}, func(c *Config) any { return c.Limits.Default.CPUs }, 1.5},
		"docker chosen, by the operator":  {[]string{"SANDBAR_DRIVER=docker"}, func(c *Config) any { return c.Limits.Default.CPUs }, float64(sandbar.Unlimited)},
		"docker chosen, less is allowed":  {[]string{"SANDBOX_TYPE=docker", "SANDBAR_LIMITS_MAX_CPUS=0.25"}, func(c *Config) any { return c.Limits.Default.CPUs }, float64(sandbar.Unlimited)},
		"docker, pull":                    {[]string{"DOCKER_PULL=Missing"}, dockerOptions, map[string]string{"pull": "missing"}},
		"e2b": {[]string{"E2B_API_KEY=k", "E2B_DOMAIN=e.example", "E2B_API_URL=https://a.example", "E2B_SANDBOX_URL=https://s.example"}, func(c *Config) any { return c.Drivers["e2b"] },
			map[string]string{"api_key": "k", "domain": "e.example", "api_url": "https://a.example", "sandbox_url": "https://s.example"}},
		"docker, empty":           {[]string{"DOCKER_IMAGE=", "DOCKER_CPU_LIMIT= "}, dockerOptions, map[string]string(nil)},
		"docker, over the file":   {[]string{"DOCKER_IMAGE=mine"}, dockerOptions, map[string]string{"image": "mine"}},
		"what is not of Sandbar":  {[]string{"SANDBOX_SECRET=x", "SANDBOX_TYPES=x", "DOCKER_HOST=x"}, func(c *Config) any { return c.Driver }, "auto"},
		"the file is overruled":   {[]string{"SANDBOX_TIMEOUT_SEC=7"}, func(c *Config) any { return c.Limits.Default.Timeout }, 7 * time.Second},
		"allowed drivers, a list": {[]string{"SANDBAR_ALLOWED_DRIVERS=local,docker"}, func(c *Config) any { return c.AllowedDrivers }, []string{"local", "docker"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := ""
			switch name {
			case "docker, over the file":
				file = "drivers: {docker: {image: theirs}}"
			case "the file is overruled":
				file = "limits: {default: {timeout: 9s}}"
			}
			c, err := loadWith(t, abstractionDrivers, file, tc.environ)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.read(c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func languageNames(c *Config) any {
	l, err := c.Catalogue()
	if err != nil {
		return err
	}
	return l.Names()
}

func dockerOptions(c *Config) any { return c.Drivers["docker"] }

// An invalid value is refused with the allowed values.
func TestAbstractionMistakes(t *testing.T) {
	for environ, want := range map[string]string{
		"SANDBOX_TYPE=dokcer": `SANDBOX_TYPE: there is no driver "dokcer" (allowed: auto, native, local)`,
		"SANDBOX_TYPE=docker": `SANDBOX_TYPE: the driver "docker" is not part of this build (allowed: auto, native, local)`,
		"SANDBOX_TYPE=e2b":    `SANDBOX_TYPE: the driver "e2b" is not part of this build (allowed: auto, native, local)`,
		"SANDBOX_TYPE=a b":    `SANDBOX_TYPE: "a b" is not a name (allowed: auto or the name of a driver, in any case; "sandbar doctor" lists them)`,

		"SANDBOX_TIMEOUT_SEC=soon": `SANDBOX_TIMEOUT_SEC: "soon" is not a number of seconds (allowed: a number of seconds from 0.001 to 31536000, such as 30)`,
		"SANDBOX_TIMEOUT_SEC=0":    `SANDBOX_TIMEOUT_SEC: "0" is out of range (allowed: a number of seconds from 0.001 to 31536000, such as 30)`,
		"SANDBOX_TIMEOUT_SEC=-1":   `SANDBOX_TIMEOUT_SEC: "-1" is out of range (allowed: a number of seconds from 0.001 to 31536000, such as 30)`,
		"SANDBOX_TIMEOUT_SEC=NaN":  `SANDBOX_TIMEOUT_SEC: "NaN" is not a number of seconds (allowed: a number of seconds from 0.001 to 31536000, such as 30)`,
		"SANDBOX_TIMEOUT_SEC=30s":  `SANDBOX_TIMEOUT_SEC: "30s" is not a number of seconds (allowed: a number of seconds from 0.001 to 31536000, such as 30)`,
		"SANDBOX_TIMEOUT_SEC=600":  `limits.default.timeout (10m, SANDBOX_TIMEOUT_SEC) is above limits.max.timeout (5m, the default) (change one of them)`,

		"SANDBAR_CODE_TIMEOUT=10m":                      `code.timeout (10m, SANDBAR_CODE_TIMEOUT) is above limits.max.timeout (5m, the default) (change one of them)`,
		"SANDBAR_CODE_TIMEOUT=5s SANDBOX_TIMEOUT_SEC=5": `SANDBAR_CODE_TIMEOUT and SANDBOX_TIMEOUT_SEC are both set, and mean the same setting (set one of them)`,

		"SANDBOX_MAX_OUTPUT_KB=-1":  `SANDBOX_MAX_OUTPUT_KB: "-1" is out of range (allowed: a whole number of KiB, such as 10, or 0 for no cut)`,
		"SANDBOX_MAX_OUTPUT_KB=1.5": `SANDBOX_MAX_OUTPUT_KB: "1.5" is not a whole number (allowed: a whole number of KiB, such as 10, or 0 for no cut)`,

		"SANDBOX_SUPPORTED_LANGUAGES=cobol": `SANDBOX_SUPPORTED_LANGUAGES: language "cobol" is not available in this sandbox; available are elixir, javascript, python, shell (allowed: a list of those)`,
		"SANDBOX_SUPPORTED_LANGUAGES=a,,b":  `SANDBOX_SUPPORTED_LANGUAGES: "" is not a name (allowed: known languages, separated by commas)`,

		"SANDBOX_BLOCK_DANGEROUS_IMPORTS=os": `SANDBOX_BLOCK_DANGEROUS_IMPORTS: "os" is neither true nor false (allowed: true or false)`,
		"SANDBOX_STORE_CODE=sometimes":       `SANDBOX_STORE_CODE: "sometimes" is not known (allowed: never, on_error or always)`,

		"SANDBAR_DRIVER=local SANDBOX_TYPE=native": `SANDBAR_DRIVER and SANDBOX_TYPE are both set, and mean the same setting (set one of them)`,
		"SANDBAR_ALLOWED_DRIVERS=auto":             `SANDBAR_ALLOWED_DRIVERS: allowed_drivers: there is no driver "auto" (allowed: native, local)`,
		"SANDBAR_ALLOWED_DRIVERS=local,local":      `SANDBAR_ALLOWED_DRIVERS: allowed_drivers: "local" stands twice (name each driver once)`,
		"SANDBAR_CODE_ARTIFACTS=/":                 `SANDBAR_CODE_ARTIFACTS: "/" is not a directory of its own (allowed: the path of a directory; a relative one begins in the working directory)`,
		"SANDBAR_CODE_BLOCKED_IMPORTS=os.path":     `SANDBAR_CODE_BLOCKED_IMPORTS: "os.path" is not the name of a module (allowed: a list of names of modules, without dots)`,
	} {
		t.Run(environ, func(t *testing.T) {
			vars := []string{environ}
			if strings.Contains(environ, " SANDBOX") {
				vars = strings.Fields(environ)
			}
			_, err := load(t, "", vars)
			if err == nil || err.Error() != want || sandbar.CodeOf(err) != sandbar.Invalid {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
	for environ, want := range map[string]string{
		"DOCKER_NETWORK_ENABLED=perhaps":             `DOCKER_NETWORK_ENABLED: "perhaps" is neither true nor false (allowed: true or false)`,
		"DOCKER_CPU_LIMIT=all":                       `DOCKER_CPU_LIMIT: "all" is not a number of processors (allowed: a number of processors, such as 0.5)`,
		"DOCKER_CPU_LIMIT=0":                         `DOCKER_CPU_LIMIT: "0" is out of range (allowed: a number of processors, such as 0.5)`,
		"DOCKER_MEMORY_LIMIT=256q":                   `DOCKER_MEMORY_LIMIT: "256q" has no known unit of size (allowed: a size, such as 256m)`,
		"DOCKER_MEMORY_LIMIT=1k":                     `DOCKER_MEMORY_LIMIT: "1k" is out of range (allowed: a size, such as 256m)`,
		"SANDBOX_TYPE=docker;DOCKER_MEMORY_LIMIT=2g": `limits.default.memory (2GiB, DOCKER_MEMORY_LIMIT) is above limits.max.memory (1GiB, the default) (change one of them)`,
		"SANDBOX_TYPE=docker;DOCKER_MEMORY_LIMIT=64m;SANDBAR_LIMITS_DEFAULT_MEMORY=64MiB": `SANDBAR_LIMITS_DEFAULT_MEMORY and DOCKER_MEMORY_LIMIT are both set, and mean the same setting (set one of them)`,
		"SANDBAR_DRIVERS={docker:{image: a}};DOCKER_IMAGE=b":                              `SANDBAR_DRIVERS and DOCKER_IMAGE both set the option image of the driver docker (set one of them)`,
	} {
		t.Run(environ, func(t *testing.T) {
			environ = strings.Replace(environ, "docker:{", "docker: {", 1)
			_, err := loadWith(t, abstractionDrivers, "", strings.Split(environ, ";"))
			if err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}

// A flag takes precedence over a variable, a variable over the file, the file over the default. The
// printed configuration names the source of each value, and loading it gives the same settings.
func TestAbstractionPrecedence(t *testing.T) {
	environ := []string{"SANDBOX_TYPE=local", "SANDBOX_TIMEOUT_SEC=7", "SANDBOX_STORE_CODE=always"}
	c, err := loadWith(t, abstractionDrivers, "driver: docker\ncode: {max_output: 20KiB, store: on_error}", environ, Flag{"driver", "--driver", "native"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Driver != "native" || c.Limits.Default.Timeout != 7*time.Second || c.Code.Store != StoreAlways || c.Code.MaxOutput != 20<<10 {
		t.Errorf("driver %s, timeout %v, store %s, output %d", c.Driver, c.Limits.Default.Timeout, c.Code.Store, c.Code.MaxOutput)
	}
	for path, want := range map[string]string{"driver": "--driver", "limits.default.timeout": "SANDBOX_TIMEOUT_SEC", "code.store": "SANDBOX_STORE_CODE", "code.block_imports": ""} {
		if got := c.Origin(path); got != want {
			t.Errorf("%s is set by %q, want %q", path, got, want)
		}
	}
	printed := c.YAML()
	for _, want := range []string{"Variable: SANDBAR_DRIVER or SANDBOX_TYPE. Set by --driver.", "store: always", "Set by SANDBOX_TIMEOUT_SEC."} {
		if !strings.Contains(unwrapped(printed), want) {
			t.Errorf("what is printed lacks %q", want)
		}
	}
	again, err := loadWith(t, abstractionDrivers, printed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Code, again.Code); diff != "" || again.Driver != c.Driver {
		t.Error(diff, again.Driver)
	}
}

// unwrapped returns a commented file with its comments joined to single lines.
func unwrapped(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, "# ")
	}
	return strings.Join(lines, " ")
}

// Each variable of the table names a setting, and the setting's documentation names the variable.
func TestAbstractionTable(t *testing.T) {
	byPath := map[string]field{}
	for _, f := range new(Config).fields() {
		byPath[f.path] = f
	}
	document := Markdown(nil)
	for _, v := range abstractionVariables() {
		f, ok := byPath[v.path]
		if !ok || !slices.Contains(f.variables(), v.name) || !strings.Contains(document, "`, `"+v.name+"`") {
			t.Errorf("%s: setting %s: %v", v.name, v.path, ok)
		}
	}
}
