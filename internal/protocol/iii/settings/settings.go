// Package settings has the settings of the iii-sandbox worker, with the names and defaults of that
// worker's own configuration (docs/protocols.md, iii: "Configuration"), so that a file for that
// worker is accepted unchanged.
package settings

import (
	"maps"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// Config is the settings. Default returns those of an empty file; the zero Config allows nothing.
type Config struct {
	// AutoInstall makes the first use of an image pull it. Otherwise the result is S101.
	AutoInstall bool `yaml:"auto_install"`
	// ImageAllowlist has the names of the allowed images, as in the catalogue. An empty list allows
	// none.
	ImageAllowlist []string `yaml:"image_allowlist"`
	// DefaultIdleTimeoutSecs is the default time without work after which a sandbox is removed, in
	// seconds.
	DefaultIdleTimeoutSecs uint64 `yaml:"default_idle_timeout_secs"`
	// MaxConcurrentSandboxes is the most sandboxes; further ones are S400.
	MaxConcurrentSandboxes int `yaml:"max_concurrent_sandboxes"`
	// MaxConcurrentExecPerSandbox is the most running programs per sandbox; further ones are S003.
	// 0 means 1.
	MaxConcurrentExecPerSandbox int `yaml:"max_concurrent_exec_per_sandbox"`
	// MaxExecTimeoutMS is the longest time limit of a program, in milliseconds. Longer requests are
	// reduced to it.
	MaxExecTimeoutMS uint64 `yaml:"max_exec_timeout_ms"`
	// DefaultCPUs and DefaultMemoryMB (mebibytes) are a sandbox's defaults.
	DefaultCPUs     uint32 `yaml:"default_cpus"`
	DefaultMemoryMB uint32 `yaml:"default_memory_mb"`
	// PerImageCaps bounds the resources by image; more is S400.
	PerImageCaps map[string]Caps `yaml:"per_image_caps"`
	// CustomImages are OCI references by catalogue name.
	CustomImages map[string]string `yaml:"custom_images"`
}

// Caps bounds the sandboxes of one image. A missing field is 0, which allows nothing.
type Caps struct {
	MaxCPUs     uint32 `yaml:"max_cpus"`
	MaxMemoryMB uint32 `yaml:"max_memory_mb"`
}

// Default returns the settings of an empty block. They allow no image.
func Default() Config {
	return Config{
		AutoInstall:                 true,
		DefaultIdleTimeoutSecs:      300,
		MaxConcurrentSandboxes:      32,
		MaxConcurrentExecPerSandbox: 4,
		MaxExecTimeoutMS:            300_000,
		DefaultCPUs:                 1,
		DefaultMemoryMB:             512,
	}
}

// Check validates the settings. An Invalid error names the field.
func (c Config) Check() error {
	for _, name := range slices.Sorted(maps.Keys(c.CustomImages)) {
		if name == "" {
			return bad("custom_images", "has an image without a name", "give it one")
		}
		if slices.ContainsFunc(presets(), func(p Image) bool { return p.Name == name }) {
			return bad("custom_images", "has an image called "+sandbar.Quote(name, 60)+", which is a preset's name", "give it another name")
		}
		if c.CustomImages[name] == "" {
			return bad("custom_images", "has no OCI reference for "+sandbar.Quote(name, 60), "give one, such as ghcr.io/acme/app:1.2.3")
		}
	}
	if c.MaxConcurrentSandboxes < 0 {
		return bad("max_concurrent_sandboxes", "is negative", "give a number from 0")
	}
	if c.MaxConcurrentExecPerSandbox < 0 {
		return bad("max_concurrent_exec_per_sandbox", "is negative", "give a number from 0")
	}
	return nil
}

func bad(field, what, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: field + " " + what, Fix: fix}
}

// ExecSlots returns the most running programs per sandbox.
func (c Config) ExecSlots() int { return max(c.MaxConcurrentExecPerSandbox, 1) }

// MaxExecTimeout returns the longest time limit of a program.
func (c Config) MaxExecTimeout() time.Duration { return Milliseconds(c.MaxExecTimeoutMS) }

// longest is the upper bound of durations that would overflow.
const longest = 365 * 24 * time.Hour

// Milliseconds converts milliseconds to a duration of at most a year.
func Milliseconds(n uint64) time.Duration {
	if n > uint64(longest/time.Millisecond) {
		return longest
	}
	return time.Duration(n) * time.Millisecond
}

// Seconds converts seconds to a duration of at most a year.
func Seconds(n uint64) time.Duration {
	if n > uint64(longest/time.Second) {
		return longest
	}
	return time.Duration(n) * time.Second
}

// Kind is the origin of an image of the catalogue.
type Kind string

// The kinds.
const (
	Preset Kind = "preset" // always in the catalogue
	Custom Kind = "custom" // from CustomImages
)

// Image is an entry of the catalogue.
type Image struct {
	Name   string `json:"name"`
	OCIRef string `json:"oci_ref"`
	Kind   Kind   `json:"kind"`
}

func presets() []Image {
	return []Image{
		{"python", "docker.io/iiidev/python:latest", Preset},
		{"node", "docker.io/iiidev/node:latest", Preset},
	}
}

// Catalogue returns the images with a name: the presets, then the custom ones sorted by name. Not
// all of them need be allowed.
func (c Config) Catalogue() []Image {
	all := presets()
	for _, name := range slices.Sorted(maps.Keys(c.CustomImages)) {
		all = append(all, Image{name, c.CustomImages[name], Custom})
	}
	return all
}

// Find returns the image called name, if it exists and is allowed.
func (c Config) Find(name string) (Image, bool) {
	if !slices.Contains(c.ImageAllowlist, name) {
		return Image{}, false
	}
	all := c.Catalogue()
	i := slices.IndexFunc(all, func(m Image) bool { return m.Name == name })
	if i < 0 {
		return Image{}, false
	}
	return all[i], true
}

// Allowed returns the names of the allowed images.
func (c Config) Allowed() []string {
	names := []string{}
	for _, m := range c.Catalogue() {
		if slices.Contains(c.ImageAllowlist, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Suggest returns the image that is most similar to name, "" if none is. A repository or tag of a
// preset ("node:20", "docker.io/library/python") counts as similar.
func (c Config) Suggest(name string) string {
	allowed := c.Allowed()
	if i := slices.Index(allowed, bare(name)); i >= 0 {
		return allowed[i]
	}
	return suggest.Name(name, allowed)
}
