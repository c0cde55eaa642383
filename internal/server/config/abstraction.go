package config

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// variable is an environment variable of the execution abstraction (docs/protocols.md, Execution):
// a second name of a setting, which programs without knowledge of Sandbar set to choose where code
// runs.
//
// Setting it together with the setting's own variable is an error. An empty value counts as unset,
// as in a template of variables to fill in. Unknown variables of the abstraction are ignored,
// unlike unknown SANDBAR_ ones.
type variable struct {
	name    string
	path    string                       // of the setting
	read    func(string) (string, error) // converts its text to that of the setting
	allowed string                       // "" for that of the setting
}

// abstractionVariables are the variables of the abstraction, except Docker's. SANDBOX_TIMEOUT_SEC
// is "a global override": the default time limit, and the limit of requests that have one.
func abstractionVariables() []variable {
	return []variable{
		{"SANDBOX_TYPE", "driver", lower, "auto or the name of a driver, in any case; \"sandbar doctor\" lists them"},
		{"SANDBOX_TIMEOUT_SEC", "limits.default.timeout", seconds, "a number of seconds from 0.001 to 31536000, such as 30"},
		{"SANDBOX_TIMEOUT_SEC", "code.timeout", seconds, "a number of seconds from 0.001 to 31536000, such as 30"},
		{"SANDBOX_MAX_OUTPUT_KB", "code.max_output", kilobytes, "a whole number of KiB, such as 10, or 0 for no cut"},
		{"SANDBOX_SUPPORTED_LANGUAGES", "code.languages", lower, "known languages, separated by commas"},
		{"SANDBOX_BLOCK_DANGEROUS_IMPORTS", "code.block_imports", yesNo, "true or false"},
		{"SANDBOX_STORE_CODE", "code.store", lower, ""},
	}
}

// driverVariable is a variable of another project, and the option of a driver that it sets.
type driverVariable struct {
	name, driver, option string
	read                 func(string) (string, error)
	allowed              string
}

const (
	dockerDriver = "docker"
	e2bDriver    = "e2b"
)

func driverVariables() []driverVariable {
	return []driverVariable{
		{"DOCKER_IMAGE", dockerDriver, "image", trim, "the name of an image"},
		{dockerNetwork, dockerDriver, "network", bridge, "true or false"},
		{"DOCKER_CPU_LIMIT", dockerDriver, "cpus", processors, "a number of processors, such as 0.5"},
		{"DOCKER_MEMORY_LIMIT", dockerDriver, "memory", memory, "a size, such as 256m"},
		{"DOCKER_PULL", dockerDriver, "pull", lower, "missing or never"},
		{"E2B_API_KEY", e2bDriver, "api_key", trim, "a key of the service"},
		{"E2B_DOMAIN", e2bDriver, "domain", trim, "a host name"},
		{"E2B_API_URL", e2bDriver, "api_url", trim, "a URL"},
		{"E2B_SANDBOX_URL", e2bDriver, "sandbox_url", trim, "a URL"},
	}
}

// dockerNetwork is the variable that gives code network access.
const dockerNetwork = "DOCKER_NETWORK_ENABLED"

// abstraction applies the variables of the execution abstraction.
func (l *loader) abstraction(vars map[string]string, drivers []Driver) {
	bad := map[string]bool{} // reports a variable of two settings once
	for _, v := range abstractionVariables() {
		text, ok := given(vars, v.name)
		if !ok || bad[v.name] {
			continue
		}
		f := l.fields[v.path]
		if _, both := vars[f.env()]; both {
			l.contradiction(v.path, f.env()+" and "+v.name+" are both set, and mean the same setting", "set one of them")
			continue
		}
		if v.allowed != "" {
			f.allowed = v.allowed
		}
		setting, err := v.read(text)
		if err == nil {
			err = f.value.set(setting)
		}
		if err != nil {
			l.fail(f.invalid(v.name, sandbar.Quote(text, 60), err))
			bad[v.name] = true
			continue
		}
		l.config.origins[v.path] = v.name
	}
	l.driverOptions(vars, drivers)
}

// driverOptions applies the variables of options. A build without the driver ignores them.
func (l *loader) driverOptions(vars map[string]string, drivers []Driver) {
	for _, v := range driverVariables() {
		text, ok := given(vars, v.name)
		if !ok || !slices.ContainsFunc(drivers, func(d Driver) bool { return d.Name == v.driver }) {
			continue
		}
		value, err := v.read(text)
		if err != nil {
			l.fail(field{path: "drivers." + v.driver + "." + v.option, allowed: v.allowed}.invalid(v.name, sandbar.Quote(text, 60), err))
			continue
		}
		options := l.config.Drivers[v.driver]
		if _, both := options[v.option]; both && l.config.origins["drivers"] == envPrefix+"DRIVERS" {
			l.contradiction("drivers", envPrefix+"DRIVERS and "+v.name+" both set the option "+v.option+" of the driver "+v.driver, "set one of them")
			continue
		}
		if options == nil {
			options = map[string]string{}
			l.config.Drivers[v.driver] = options
		}
		options[v.option] = value
		l.config.origins["drivers."+v.driver+"."+v.option] = v.name
	}
}

// dockerDefaults applies the Docker variables to the defaults of all executions (limits and
// network), if Docker runs the code.
func (l *loader) dockerDefaults(vars map[string]string) {
	if l.config.Driver != dockerDriver {
		return
	}
	options := l.config.Drivers[dockerDriver]
	l.dockerCPUs(options)
	for option, path := range map[string]string{"cpus": "limits.default.cpus", "memory": "limits.default.memory", "network": "code.network"} {
		name := l.config.origins["drivers.docker."+option]
		if name == "" {
			continue
		}
		f := l.fields[path]
		if _, both := vars[f.env()]; both {
			l.contradiction(path, f.env()+" and "+name+" are both set, and mean the same setting", "set one of them")
			continue
		}
		text := options[option]
		if name == dockerNetwork {
			text = strconv.FormatBool(text != noNetwork)
		}
		if err := f.value.set(text); err != nil {
			l.fail(f.invalid(name, sandbar.Quote(text, 60), err))
			continue
		}
		l.config.origins[path] = name
	}
}

// defaultDockerCPUs is the value of DOCKER_CPU_LIMIT if SANDBOX_TYPE chooses Docker and the
// variable is not set.
const defaultDockerCPUs = "0.5"

// dockerCPUs applies defaultDockerCPUs if the abstraction's variable has chosen Docker. If the
// operator has set driver, the defaults of all drivers apply.
func (l *loader) dockerCPUs(options map[string]string) {
	const path = "limits.default.cpus"
	c := l.config
	if c.origins["driver"] != "SANDBOX_TYPE" || options["cpus"] != "" || c.origins[path] != "" {
		return
	}
	if c.Limits.Max.CPUs == 0 || c.Limits.Max.CPUs == sandbar.Unlimited || c.Limits.Max.CPUs >= 0.5 {
		if l.fields[path].value.set(defaultDockerCPUs) == nil {
			c.origins[path] = "SANDBOX_TYPE"
		}
	}
}

// given returns a variable's text, if it is not empty.
func given(vars map[string]string, name string) (string, bool) {
	text := strings.TrimSpace(vars[name])
	return text, text != ""
}

func trim(s string) (string, error) { return s, nil }

func lower(s string) (string, error) { return strings.ToLower(s), nil }

// yesNo parses the truth values of several languages.
func yesNo(s string) (string, error) {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on":
		return "true", nil
	case "false", "0", "no", "off":
		return "false", nil
	}
	return "", errors.New("is neither true nor false")
}

// noNetwork is Docker's network without network access.
const noNetwork = "none"

// bridge converts a truth value to a Docker network.
func bridge(s string) (string, error) {
	on, err := yesNo(s)
	switch {
	case err != nil:
		return "", err
	case on == "true":
		return "bridge", nil
	}
	return noNetwork, nil
}

// seconds converts a number of seconds to a duration.
func seconds(s string) (string, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xX_pP") || math.IsNaN(n) {
		return "", errors.New("is not a number of seconds")
	}
	if n < 0.001 || n > maxDuration.Seconds() {
		return "", errors.New("is out of range")
	}
	return time.Duration(n * float64(time.Second)).Round(time.Microsecond).String(), nil
}

// kilobytes converts a number of KiB to a size. 0 means no bound.
func kilobytes(s string) (string, error) {
	n, err := ParseCount(s)
	switch {
	case err != nil:
		return "", err
	case n < 0 || n > maxSize>>10:
		return "", errors.New("is out of range")
	case n == 0:
		return unlimitedWord, nil
	}
	return FormatSize(n << 10), nil
}

// processors parses a number of CPUs.
func processors(s string) (string, error) {
	n, err := ParseCPUs(s)
	if err == nil && (n < 0.01 || n > 4096) {
		err = errors.New("is out of range")
	}
	return FormatCPUs(n), err
}

// memory parses a size in Docker's format: a number and a letter, or bytes.
func memory(s string) (string, error) {
	n, err := parseBytes(s)
	if err == nil && (n < 1<<20 || n > maxSize) {
		err = errors.New("is out of range")
	}
	return FormatSize(n), err
}
