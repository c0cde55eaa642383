package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// YAML returns the whole configuration as a file for Load: every setting with its documentation,
// allowed values, default, variable and origin. Secrets are left out.
func (c *Config) YAML() string {
	var b strings.Builder
	b.WriteString("# The configuration of Sandbar. A flag wins over an environment variable, a\n" +
		"# variable over this file, this file over the defaults.\n")
	var open []string
	for _, f := range c.fields() {
		keys := strings.Split(f.path, ".")
		sections := keys[:len(keys)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		b.WriteString("\n")
		for i := same; i < len(sections); i++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), sections[i])
		}
		open = sections
		indent := strings.Repeat("  ", len(sections))
		comment(&b, indent, f.doc)
		comment(&b, indent, "Allowed: "+f.allowed+".")
		comment(&b, indent, "Default: "+f.shownDefault()+". Variable: "+strings.Join(f.variables(), " or ")+"."+setBy(c.origins[f.path]))
		b.WriteString(c.setting(f, indent, keys[len(keys)-1]))
	}
	return b.String()
}

func (f field) shownDefault() string {
	switch {
	case f.initial != "":
		return f.initial
	case f.instead != "":
		return f.instead
	}
	return "none"
}

func setBy(origin string) string {
	if origin == "" {
		return ""
	}
	return " Set by " + origin + "."
}

func (c *Config) setting(f field, indent, key string) string {
	if f.secret {
		if c.origins[f.path] != "" {
			return indent + "# " + key + ": (set, not shown)\n"
		}
		return indent + "# " + key + ":\n"
	}
	value := f.value.yaml(indent)
	if value == `""` {
		// The file expresses "unset" only by the absence of the line.
		return indent + "# " + key + ":\n"
	}
	if !strings.HasPrefix(value, "\n") {
		value = " " + value
	}
	return indent + key + ":" + value + "\n"
}

// comment writes text as comment lines of at most 78 columns.
func comment(b *strings.Builder, indent, text string) {
	line := indent + "#"
	for _, w := range strings.Fields(text) {
		if len(line)+1+len(w) > 78 && line != indent+"#" {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}

// Markdown returns docs/configuration.md: the table of settings for readers.
func Markdown(drivers []Driver) string {
	var b strings.Builder
	b.WriteString(markdownHead)
	for _, section := range sections() {
		fmt.Fprintf(&b, "\n## %s\n\n| setting | variable | default | allowed | meaning |\n|---|---|---|---|---|\n", section.title)
		for _, f := range section.fields {
			initial := cell(f.shownDefault())
			if f.initial != "" {
				initial = "`" + initial + "`"
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", f.path, strings.Join(f.variables(), "`, `"), initial, cell(f.allowed), cell(f.doc))
		}
	}
	b.WriteString(markdownReload)
	for _, f := range new(Config).fields() {
		if f.live() {
			fmt.Fprintf(&b, "- `%s`\n", f.path)
		}
	}
	b.WriteString("\n## Drivers\n\n| driver | description | options |\n|---|---|---|\n")
	for _, d := range drivers {
		var options []string
		for _, name := range slices.Sorted(maps.Keys(d.Options)) {
			options = append(options, "`"+name+"`: "+d.Options[name])
		}
		if len(options) == 0 {
			options = []string{"none"}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.Name, cell(d.Summary), cell(strings.Join(options, "; ")))
	}
	return b.String()
}

// section has the settings with the same path except for the last name.
type section struct {
	title  string
	fields []field
}

func sections() []section {
	out := []section{{title: "Top level"}}
	for _, f := range new(Config).fields() {
		title := out[0].title
		if dot := strings.LastIndex(f.path, "."); dot > 0 {
			title = "`" + f.path[:dot] + "`"
		}
		i := slices.IndexFunc(out, func(s section) bool { return s.title == title })
		if i < 0 {
			i = len(out)
			out = append(out, section{title: title})
		}
		out[i].fields = append(out[i].fields, f)
	}
	return out
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const markdownHead = `# Configuration

<!-- Generated from the table in internal/server/config/fields.go by "go test ./cmd/sandbar -run TestConfigurationDocument -update". -->

Every setting has a place in one YAML file and an environment variable; a few are flags too. A flag
wins over a variable, a variable over the file, the file over the default.

The file is the one of ` + "`--config`" + ` or ` + "`SANDBAR_CONFIG`" + `. Without either it is
` + "`/etc/sandbar/config.yaml`" + ` for root and ` + "`$XDG_CONFIG_HOME/sandbar/config.yaml`" + `
(` + "`~/.config/sandbar/config.yaml`" + `) for other users, if it exists.
` + "`sandbar serve --print-config`" + ` prints a complete file with all values in force.

The file is strict: an unknown setting, a repeated setting, or a value of the wrong type or out of
range is an error that names the line and the allowed values. So is a ` + "`SANDBAR_`" + ` variable that is
not in these tables, except those that Kubernetes sets for a service of this name.

- Sizes: ` + "`B`, `KiB`, `MiB`, `GiB`, `TiB`" + ` are powers of 1024 (` + "`K`, `M`, `G`, `T`" + ` too),
  ` + "`KB`, `MB`, `GB`, `TB`" + ` powers of 1000. A number without a unit is an
  error, except 0.
- Durations: ` + "`500ms`, `30s`, `1h30m`" + `. A number without a unit is an error.
- Lists in a variable are separated by commas; ` + "`drivers` and `languages`" + ` are
  written there as YAML or JSON.
`

const markdownReload = `
## Changes while the daemon runs

On SIGHUP (` + "`systemctl reload sandbar`" + `) the daemon reads the file, the files that variables name, and
the tokens again. Executions, sandboxes and open connections continue; later requests need the new
tokens. A configuration with a mistake changes nothing, and the log names the mistake. The settings
of this list change at once. Any other changed setting needs a restart, and the log names it. The
files of tls.cert and tls.key need no signal.

`
