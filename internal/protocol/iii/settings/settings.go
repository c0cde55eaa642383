// Package settings is what an operator of the iii-sandbox worker can set, under
// the names and with the defaults of that worker's own configuration
// (docs/protocols.md, iii: "Configuration"), so that a file written for it is
// accepted as it is.
package settings

import (
	"maps"
	"slices"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// Config is the settings. Default returns them as they are when a file says
// nothing; the zero Config allows nothing.
type Config struct {
	// AutoInstall: an image that is not here is pulled when it is first used.
	// Otherwise that is S101.
	AutoInstall bool `yaml:"auto_install"`
	// ImageAllowlist names the images that may be used, exactly as in the
	// catalogue. An empty list allows none.
	ImageAllowlist []string `yaml:"image_allowlist"`
	// DefaultIdleTimeoutSecs is after how many seconds without work a sandbox
	// is removed whose creator did not say.
	DefaultIdleTimeoutSecs uint64 `yaml:"default_idle_timeout_secs"`
	// MaxConcurrentSandboxes is how many sandboxes there may be; more are S400.
	MaxConcurrentSandboxes int `yaml:"max_concurrent_sandboxes"`
	// MaxConcurrentExecPerSandbox is how many programs may run at once in one
	// sandbox; more are S003. 0 means 1.
	MaxConcurrentExecPerSandbox int `yaml:"max_concurrent_exec_per_sandbox"`
	// MaxExecTimeoutMS is the longest a program may run, in milliseconds; what
	// a caller asks for beyond it is cut to it.
	MaxExecTimeoutMS uint64 `yaml:"max_exec_timeout_ms"`
	// DefaultCPUs and DefaultMemoryMB (mebibytes) are a sandbox's when its
	// creator does not say.
	DefaultCPUs     uint32 `yaml:"default_cpus"`
	DefaultMemoryMB uint32 `yaml:"default_memory_mb"`
	// PerImageCaps bounds what may be asked for, by image; more is S400.
	PerImageCaps map[string]Caps `yaml:"per_image_caps"`
	// CustomImages are OCI references by the name they have in the catalogue.
	CustomImages map[string]string `yaml:"custom_images"`
}

// Caps bounds the sandboxes of one image. What a file leaves out is 0: nothing
// is allowed.
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

// Check refuses what cannot be meant: an Invalid error that names the field.
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

// ExecSlots is how many programs may run at once in one sandbox.
func (c Config) ExecSlots() int { return max(c.MaxConcurrentExecPerSandbox, 1) }

// MaxExecTimeout is the longest a program may run.
func (c Config) MaxExecTimeout() time.Duration { return Milliseconds(c.MaxExecTimeoutMS) }

// longest is what times that do not fit a time.Duration are cut to.
const longest = 365 * 24 * time.Hour

// Milliseconds turns a number of milliseconds into a duration, cut to a year.
func Milliseconds(n uint64) time.Duration {
	if n > uint64(longest/time.Millisecond) {
		return longest
	}
	return time.Duration(n) * time.Millisecond
}

// Seconds turns a number of seconds into a duration, cut to a year.
func Seconds(n uint64) time.Duration {
	if n > uint64(longest/time.Second) {
		return longest
	}
	return time.Duration(n) * time.Second
}

// Kind tells where an image of the catalogue comes from.
type Kind string

// The kinds.
const (
	Preset Kind = "preset" // it is always there
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

// Catalogue lists the images that have a name: the presets, then the custom
// ones in the order of their names. That an image is listed does not mean that
// it is allowed.
func (c Config) Catalogue() []Image {
	all := presets()
	for _, name := range slices.Sorted(maps.Keys(c.CustomImages)) {
		all = append(all, Image{name, c.CustomImages[name], Custom})
	}
	return all
}

// Find returns the image called name, if there is one and it is allowed.
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

// Allowed is the names of the images that can be used.
func (c Config) Allowed() []string {
	names := []string{}
	for _, m := range c.Catalogue() {
		if slices.Contains(c.ImageAllowlist, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Near is the image that was probably meant by name, "" if none was. A
// repository or tag of a preset's name ("node:20", "docker.io/library/python")
// counts as near.
func (c Config) Near(name string) string {
	allowed := c.Allowed()
	if i := slices.Index(allowed, bare(name)); i >= 0 {
		return allowed[i]
	}
	return suggest.Name(name, allowed)
}
