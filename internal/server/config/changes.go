package config

import (
	"slices"
	"strings"
)

// live reports whether a running daemon can apply a change of the setting.
func (f field) live() bool {
	return slices.Contains([]string{"token", "token_file", "allowed_hosts", "allowed_origins", "metrics_open", "clients", "tenants",
		"log.level", "paused.on_shutdown", "shutdown_timeout"}, f.path)
}

// Setting is a setting in force.
type Setting struct {
	Name     string
	Value    string // in YAML; "" if it is not set, or secret
	Default  string // or what applies without one, in words
	Origin   string // where it was set; "" if it has its default
	Variable string
	Allowed  string // in words
	Doc      string
	Secret   bool
	Live     bool // SIGHUP applies a change
}

// Settings returns the settings in force of a daemon that began with started and has loaded loaded
// since. No value is secret.
func Settings(started, loaded *Config) []Setting {
	var all []Setting
	before, after := started.fields(), loaded.fields()
	for i, f := range before {
		c := started
		if f.live() {
			f, c = after[i], loaded
		}
		s := Setting{Name: f.path, Default: f.shownDefault(), Origin: c.origins[f.path], Variable: f.env(), Allowed: f.allowed, Doc: f.doc, Secret: f.secret, Live: f.live()}
		if s.Value = strings.TrimSpace(f.value.yaml("")); f.secret || s.Value == `""` {
			s.Value = ""
		}
		all = append(all, s)
	}
	return all
}

// Changes returns the names of the settings that differ between two configurations: those that a
// running daemon can apply, and those that need a restart. It does not compare files that settings
// name, such as token files.
func Changes(from, to *Config) (live, restart []string) {
	before, after := from.fields(), to.fields()
	for i, f := range before {
		switch {
		case f.value.yaml("") == after[i].value.yaml(""):
		case f.live():
			live = append(live, f.path)
		default:
			restart = append(restart, f.path)
		}
	}
	return live, restart
}
