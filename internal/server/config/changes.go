package config

import "slices"

// live reports whether a running daemon takes a change of the setting.
func (f field) live() bool {
	return slices.Contains([]string{"token", "token_file", "allowed_hosts", "allowed_origins", "metrics_open", "clients",
		"log.level", "shutdown_timeout"}, f.path)
}

// Changes names the settings whose values differ between two configurations: those
// that a running daemon takes, and those for which it must be restarted. Files that
// a setting names, such as those of tokens, are not looked at.
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
