package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// AutoDriver is the value of driver with which Sandbar chooses the driver.
const AutoDriver = "auto"

// contradictions reports settings that are valid alone but not together.
func (l *loader) contradictions(drivers []Driver) {
	c := l.config
	l.exclusive("token", c.Token != "", "token_file", c.TokenFile != "")
	l.together("tls.cert", c.TLS.Cert != "", "tls.key", c.TLS.Key != "")
	if c.MetricsOpen && !c.Loopback() {
		l.contradiction("metrics_open", "metrics_open needs a listener on loopback, and "+l.told("listen")+" is not on it",
			"give the token to whatever collects the metrics, or listen on 127.0.0.1")
	}
	l.exclusive("iii.worker.token", c.III.Worker.Token != "", "iii.worker.token_file", c.III.Worker.TokenFile != "")
	l.ranges()
	if most := c.Limits.Max.Timeout; most > 0 && c.Code.Timeout > most && c.Origin("code.timeout") != c.Origin("limits.default.timeout") {
		l.contradiction("code.timeout", l.told("code.timeout")+" is above "+l.told("limits.max.timeout"), "change one of them")
	}
	l.supportedLanguages()
	if drivers != nil {
		l.knownDrivers(drivers)
	}
}

func (l *loader) contradiction(field, message, fix string) {
	l.fail(&sandbar.Error{Code: sandbar.Invalid, Field: field, Message: message, Fix: fix})
}

// told returns a setting with its value and origin.
func (l *loader) told(path string) string {
	origin := l.config.Origin(path)
	if origin == "" {
		origin = "the default"
	}
	return path + " (" + l.fields[path].value.String() + ", " + origin + ")"
}

func (l *loader) exclusive(a string, aSet bool, b string, bSet bool) {
	if aSet && bSet {
		l.contradiction(b, a+" ("+l.config.Origin(a)+") and "+b+" ("+l.config.Origin(b)+") are both set", "set one of them")
	}
}

func (l *loader) together(a string, aSet bool, b string, bSet bool) {
	switch {
	case aSet && !bSet:
		l.contradiction(b, a+" ("+l.config.Origin(a)+") is set without "+b, "set both, or neither for plain HTTP")
	case bSet && !aSet:
		l.contradiction(a, b+" ("+l.config.Origin(b)+") is set without "+a, "set both, or neither for plain HTTP")
	}
}

// ranges checks that the minimum, default and maximum of each limit are in order.
func (l *loader) ranges() {
	def, low, high := l.config.Limits.Default, l.config.Limits.Min, l.config.Limits.Max
	ordered(l, "memory", low.Memory, def.Memory, high.Memory)
	ordered(l, "cpu_shares", low.CPUShares, def.CPUShares, high.CPUShares)
	ordered(l, "pids", low.PIDs, def.PIDs, high.PIDs)
	if def.Disk == 0 { // half of the memory, within the range
		def.Disk = low.Disk
	}
	ordered(l, "disk", low.Disk, def.Disk, high.Disk)
	ordered(l, "inodes", low.Inodes, def.Inodes, high.Inodes)
	ordered(l, "files", low.Files, def.Files, high.Files)
	ordered(l, "timeout", low.Timeout, def.Timeout, high.Timeout)
	ordered(l, "output", low.Output, def.Output, high.Output)
	// otherwise the engine adapts them to the host
	if high.CPUs != 0 && def.CPUs != sandbar.Unlimited {
		ordered(l, "cpus", low.CPUs, def.CPUs, high.CPUs)
	}
}

func ordered[T quantity](l *loader, name string, low, def, high T) {
	path := func(section string) string { return "limits." + section + "." + name }
	above := func(a, b T) bool { return b != sandbar.Unlimited && (a > b || a == sandbar.Unlimited) }
	complain := func(greater, lesser string) {
		l.contradiction(path(greater), l.told(path(greater))+" is above "+l.told(path(lesser)), "change one of them")
	}
	switch {
	case above(low, high):
		complain("min", "max")
	case above(low, def):
		complain("min", "default")
	case above(def, high):
		complain("default", "max")
	}
}

// knownDrivers checks the names of drivers and of their options.
func (l *loader) knownDrivers(drivers []Driver) {
	names := []string{AutoDriver}
	options := map[string][]string{}
	for _, d := range drivers {
		names = append(names, d.Name)
		options[d.Name] = slices.Sorted(maps.Keys(d.Options))
	}
	if name := l.config.Driver; !slices.Contains(names, name) {
		l.contradiction("driver", l.config.Origin("driver")+": "+noDriver(name), "allowed: "+strings.Join(names, ", "))
	}
	for i, name := range l.config.AllowedDrivers {
		where := l.config.Origin("allowed_drivers") + ": allowed_drivers: "
		switch {
		case !slices.Contains(names[1:], name):
			l.contradiction("allowed_drivers", where+noDriver(name), "allowed: "+strings.Join(names[1:], ", "))
		case slices.Contains(l.config.AllowedDrivers[:i], name):
			l.contradiction("allowed_drivers", where+sandbar.Quote(name, 40)+" stands twice", "name each driver once")
		}
	}
	if name := l.config.III.Driver; name != "" && name != AutoDriver && name != l.config.Driver && !slices.Contains(l.config.AllowedDrivers, name) {
		l.contradiction("iii.driver", l.config.Origin("iii.driver")+": iii.driver: "+sandbar.Quote(name, 40)+" is neither the setting driver nor one of allowed_drivers",
			"add it to allowed_drivers, or use auto")
	}
	where := l.config.Origin("drivers")
	for _, name := range slices.Sorted(maps.Keys(l.config.Drivers)) {
		known, ok := options[name]
		if !ok {
			l.contradiction("drivers", where+": drivers: "+noDriver(name),
				"allowed: "+strings.Join(names[1:], ", "))
			continue
		}
		for _, option := range slices.Sorted(maps.Keys(l.config.Drivers[name])) {
			if !slices.Contains(known, option) {
				l.contradiction("drivers."+name, where+": drivers."+name+": there is no option "+sandbar.Quote(option, 40), optionsFix(name, option, known))
			}
		}
	}
}

// noDriver returns the reason for an unknown driver, which other builds may have.
func noDriver(name string) string {
	switch name {
	case "docker", "oci", "gvisor", "vm", "wasm", "native", "e2b":
		return "the driver " + sandbar.Quote(name, 40) + " is not part of this build"
	}
	return "there is no driver " + sandbar.Quote(name, 40)
}

// supportedLanguages checks that the allowed languages exist.
func (l *loader) supportedLanguages() {
	if _, err := l.config.Catalogue(); err != nil && len(l.config.Code.Languages) > 0 {
		l.contradiction("code.languages", l.config.Origin("code.languages")+": "+sandbar.AsError(err).Message, "allowed: a list of those")
	}
}

func optionsFix(driver, option string, known []string) string {
	if len(known) == 0 {
		return "the driver " + driver + " has no options"
	}
	return unknownFix(option, known, "allowed: "+strings.Join(known, ", "))
}
