package config

import "slices"

// live reports whether a running daemon can apply a change of the setting.
func (f field) live() bool {
	return slices.Contains([]string{"token", "token_file", "allowed_hosts", "allowed_origins", "metrics_open", "clients", "tenants",
		"log.level", "paused.on_shutdown", "shutdown_timeout"}, f.path)
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
