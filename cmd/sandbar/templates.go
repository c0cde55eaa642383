package main

import (
	"slices"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/engine/lang"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// templates returns the templates of the daemon's warm pool. iii are the Caps of the driver of the
// iii protocol's sandboxes.
func templates(cfg *config.Config, languages *lang.Catalogue, first, iii driver.Caps) []engine.Template {
	if cfg.Templates.Auto {
		all := defaultTemplates(languages, cfg.Fathom.Network)
		if cfg.III.Listen != "" && cfg.III.Sandboxes {
			all = append(all, iiiTemplates(cfg, first, iii)...)
		}
		if cfg.E2B && first.Outbound { // its sandboxes have a network unless their clients refuse it
			all = append(all, engine.Template{Min: 2, Max: 16, Spec: sandbar.Spec{Network: sandbar.NetworkOutbound}})
		}
		return all
	}
	var out []engine.Template
	for _, t := range cfg.Templates.List {
		out = append(out, engine.Template{
			Language: t.Language, Imports: t.Imports, Min: int(t.Min), Max: int(t.Max), NoInterpreter: !t.Fork,
			Spec: sandbar.Spec{Image: t.Image, Limits: sandbar.Limits{Memory: t.Memory, CPUs: t.CPUs}},
		})
	}
	return out
}

// defaultTemplates returns the templates of templates: auto, for executions of code and
// for sandboxes created without options. Python, shell and plain sandboxes are ready from
// the start; Node.js and the BEAM, which use more memory, after their first request. With
// network the templates of languages have an outbound network.
func defaultTemplates(languages *lang.Catalogue, network bool) []engine.Template {
	all := []engine.Template{
		{Language: "python", Min: 2, Max: 16},
		{Min: 2, Max: 16},
		{Language: "shell", Min: 1, Max: 16},
		{Language: "javascript", Max: 8},
		{Language: "elixir", Max: 4},
	}
	for i := range all {
		if network && all[i].Language != "" {
			all[i].Spec.Network = sandbar.NetworkOutbound
		}
	}
	return slices.DeleteFunc(all, func(t engine.Template) bool {
		return t.Language != "" && !slices.Contains(languages.Names(), t.Language)
	})
}

// iiiTemplates returns templates for sandboxes of the iii protocol that are created with
// an image and no other options. Each fills after the first request for its image. first are the
// Caps of the engine's first driver, caps those of the protocol's.
func iiiTemplates(cfg *config.Config, first, caps driver.Caps) []engine.Template {
	var limits sandbar.Limits
	if caps.Enforced.CPUs != sandbar.EnforcedNone {
		limits.CPUs = float64(cfg.III.DefaultCPUs)
	}
	if caps.Enforced.Memory != sandbar.EnforcedNone {
		limits.Memory = cfg.III.DefaultMemoryMB << 20
	}
	name := ""
	if caps.Name != first.Name {
		name = caps.Name
	}
	images := []string{sandbar.ImageHost}
	for _, image := range iiiSettings(cfg.III).Catalogue() {
		if slices.Contains(cfg.III.ImageAllowlist, image.Name) {
			images = append(images, image.OCIRef)
		}
	}
	var out []engine.Template
	for _, image := range images {
		out = append(out, engine.Template{Max: 16, Spec: sandbar.Spec{Driver: name, Image: image, Limits: limits}})
	}
	return out
}
