package image

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// Preset is an image of every catalogue.
type Preset struct {
	// Name is the short name, Ref the reference.
	Name, Ref string
	// Program is the program for which callers use the image. A host that has it can substitute the
	// image.
	Program string
}

// Presets returns the presets, in the order of the iii protocol.
func Presets() []Preset {
	return []Preset{
		{"python", "docker.io/iiidev/python:latest", "python3"},
		{"node", "docker.io/iiidev/node:latest", "node"},
	}
}

// Cap bounds the resources of sandboxes of one image. 0 means that none may be requested, as in the
// iii protocol.
type Cap struct {
	CPUs     float64
	MemoryMB int64
}

// CatalogueConfig is the operator's choice. Names in parentheses are those of the iii protocol's
// configuration.
type CatalogueConfig struct {
	// Store is the image store. Never nil.
	Store *Store
	// AutoInstall makes Ensure pull images that are not in the store (auto_install).
	AutoInstall bool
	// Allow lists the names that may be used. If it is empty, none may (image_allowlist).
	Allow []string
	// Custom has further names and their references (custom_images).
	Custom map[string]string
	// Caps bounds the resources per image (per_image_caps).
	Caps map[string]Cap
	// Pull says how images are fetched.
	Pull PullOptions
	// OnHost reports whether sandboxes of the image "host" have a program. If nil, the host
	// substitutes no image.
	OnHost func(program string) bool
	// Unrestricted allows every name of the catalogue and every image of the store. It is for the
	// owner of the host.
	Unrestricted bool
}

// Entry is one row of a catalogue.
type Entry struct {
	Name string `json:"name"`
	// Ref is the reference of the name.
	Ref string `json:"oci_ref"`
	// Kind is "preset" or "custom".
	Kind string `json:"kind"`
	// Allowed reports whether the operator allows the image.
	Allowed bool `json:"allowed"`
	// Installed reports whether it is in the store.
	Installed bool `json:"installed"`
	// Substitute reports that it is not in the store, and that the host's own program is used
	// instead.
	Substitute bool `json:"substitute"`

	program string
}

// Reason is the reason why a catalogue refuses an image. The set is closed: protocols map each to a
// code.
type Reason string

// The reasons.
const (
	// Unknown: there is no such name, or the operator does not allow it; callers cannot distinguish
	// the two. (S100 of the iii protocol.)
	Unknown Reason = "unknown"
	// NotInstalled: the image is not in the store, and AutoInstall is off. (S101)
	NotInstalled Reason = "not_installed"
	// InstallFailed: the image could not be pulled. (S102)
	InstallFailed Reason = "install_failed"
	// OverCap: the requested resources exceed the image's cap. (S400)
	OverCap Reason = "over_cap"
)

// Reasons are all reasons, for tables and their tests.
var Reasons = []Reason{Unknown, NotInstalled, InstallFailed, OverCap}

// Refusal is an error with a Reason. Its chain contains a *sandbar.Error.
type Refusal struct {
	Reason Reason
	Name   string // of the image
	Err    *sandbar.Error
}

// Error returns the text of the wrapped error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the wrapped error.
func (r *Refusal) Unwrap() error { return r.Err }

// ReasonOf returns the Reason of an error, "" if it is not a Refusal.
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Reason
	}
	return ""
}

// Catalogue is the operator's choice of images. Its methods may be called concurrently.
type Catalogue struct {
	c       CatalogueConfig
	entries []Entry
}

var _ driver.Images = (*Catalogue)(nil)

// NewCatalogue checks the configuration. Invalid: a custom image has no name, the name of a preset
// or "host", or a malformed reference; Allow or Caps has an unknown name; a cap is negative.
func NewCatalogue(c CatalogueConfig) (*Catalogue, error) {
	k := &Catalogue{c: c}
	for _, p := range Presets() {
		k.entries = append(k.entries, Entry{Name: p.Name, Ref: p.Ref, Kind: "preset", program: p.Program})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Custom)) {
		if name == "" || name == sandbar.ImageHost || k.find(name) != nil {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "custom_images",
				Message: "a custom image cannot be called " + sandbar.Quote(name, 80) + ": that is taken, or is no name"}
		}
		if _, err := ParseReference(c.Custom[name]); err != nil {
			e := *sandbar.AsError(err)
			e.Field, e.Message = "custom_images."+name, "custom image "+sandbar.Quote(name, 80)+": "+e.Message
			return nil, &e
		}
		k.entries = append(k.entries, Entry{Name: name, Ref: c.Custom[name], Kind: "custom"})
	}
	for _, name := range c.Allow {
		if k.find(name) == nil && name != sandbar.ImageHost {
			return nil, k.noSuchName("image_allowlist", name)
		}
	}
	for name, limit := range c.Caps {
		if k.find(name) == nil && name != sandbar.ImageHost {
			return nil, k.noSuchName("per_image_caps", name)
		}
		if limit.CPUs < 0 || limit.MemoryMB < 0 {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "per_image_caps",
				Message: "the caps of image " + sandbar.Quote(name, 80) + " are negative"}
		}
	}
	for i := range k.entries {
		k.entries[i].Allowed = slices.Contains(c.Allow, k.entries[i].Name)
	}
	return k, nil
}

func (k *Catalogue) find(name string) *Entry {
	i := slices.IndexFunc(k.entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &k.entries[i]
}

func (k *Catalogue) noSuchName(field, name string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: field,
		Message: field + " has " + sandbar.Quote(name, 80) + ", which is neither a preset nor in custom_images; there are " + k.list(func(Entry) bool { return true })}
}

func (k *Catalogue) list(which func(Entry) bool) string {
	var names []string
	for _, e := range k.entries {
		if which(e) {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// List returns all entries: presets first, then custom images by name.
func (k *Catalogue) List() []Entry {
	out := slices.Clone(k.entries)
	for i := range out {
		_, err := k.c.Store.Find(out[i].Ref)
		out[i].Installed = err == nil
		out[i].Substitute = !out[i].Installed && k.canSubstitute(&out[i])
	}
	return out
}

// Reference returns the reference of a name of the catalogue, or the name itself.
func (k *Catalogue) Reference(name string) string {
	if e := k.find(name); e != nil {
		return e.Ref
	}
	return name
}

// canSubstitute reports whether the host can substitute an image.
func (k *Catalogue) canSubstitute(e *Entry) bool {
	return e.program != "" && k.c.OnHost != nil && k.c.OnHost(e.program)
}

// Check refuses a request before anything is pulled. The Refusal is Unknown, or OverCap if the CPUs
// or the memory exceed the image's cap. Resources of 0 are not checked.
func (k *Catalogue) Check(name string, cpus float64, memoryMB int64) error {
	if _, err := k.lookup(name); err != nil {
		return err
	}
	limit, ok := k.c.Caps[name]
	if !ok {
		return nil
	}
	over := func(field, got, most string) error {
		return &Refusal{OverCap, name, &sandbar.Error{Code: sandbar.TooLarge, Field: field,
			Message: field + "=" + got + " is over the cap of image " + sandbar.Quote(name, 80) + ", " + most, Fix: "ask for " + most + " or less"}}
	}
	if cpus > limit.CPUs {
		return over("cpus", float(cpus), float(limit.CPUs))
	}
	if memoryMB > limit.MemoryMB {
		return over("memory_mb", number(memoryMB), number(limit.MemoryMB))
	}
	return nil
}

func float(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// lookup returns the entry of an allowed name, or nil for an image of the store without one.
func (k *Catalogue) lookup(name string) (*Entry, error) {
	e := k.find(name)
	if e != nil && (e.Allowed || k.c.Unrestricted) {
		return e, nil
	}
	if e == nil && k.c.Unrestricted {
		return nil, nil
	}
	allowed := func(e Entry) bool { return e.Allowed }
	return nil, &Refusal{Unknown, name, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
		Message: "image " + sandbar.Quote(name, 100) + " is not available; available are " + k.list(allowed),
		Fix:     "use one of them, or have the operator add it to custom_images and image_allowlist"}}
}

// Ready is an image from which sandboxes can be created.
type Ready struct {
	// Image is the image in the store, zero for a Substitute.
	Image Image
	// Substitute says that the image is not installed and the host's own program is used instead.
	Substitute bool
	// Note is a sentence about that for the caller, or "".
	Note string
}

// Ensure makes an image available. It pulls a missing image if AutoInstall is on, and reports
// progress if that is not nil. The image can be removed at any time; only Open keeps it.
//
// Errors are Refusals: Unknown, NotInstalled, InstallFailed.
func (k *Catalogue) Ensure(ctx context.Context, name string, progress func(Progress)) (Ready, error) {
	e, err := k.lookup(name)
	if err != nil {
		return Ready{}, err
	}
	ref := k.Reference(name)
	i, err := k.c.Store.Find(ref)
	switch {
	case err == nil:
		return Ready{Image: i}, nil
	case sandbar.CodeOf(err) != sandbar.NotFound:
		return Ready{}, err
	case e != nil && k.canSubstitute(e):
		return Ready{Substitute: true, Note: substituteNote(e)}, nil
	case !k.c.AutoInstall, e == nil && !strings.ContainsRune(name, '/'):
		return Ready{}, k.notInstalled(name)
	}
	o := k.c.Pull
	o.Progress = progress
	if i, err = k.c.Store.Pull(ctx, ref, o); err != nil {
		return Ready{}, &Refusal{InstallFailed, name, sandbar.AsError(err)}
	}
	return Ready{Image: i}, nil
}

func substituteNote(e *Entry) string {
	return "image " + e.Name + " is not installed; this host's own " + e.program + " stands in for it (`sandbar images pull " + e.Name + "` installs it)"
}

func (k *Catalogue) notInstalled(name string) error {
	return &Refusal{NotInstalled, name, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
		Message: "image " + sandbar.Quote(name, 100) + " is not installed on this host",
		Fix:     "as the operator: sandbar images pull " + name}}
}

// Open implements driver.Images.
func (k *Catalogue) Open(ctx context.Context, name string) (driver.Image, error) {
	e, err := k.lookup(name)
	if err != nil {
		return driver.Image{}, err
	}
	i, release, err := k.c.Store.Use(ctx, k.Reference(name))
	if err == nil {
		return driver.Image{ID: i.ID, Dir: i.Dir, Close: release}, nil
	}
	if sandbar.CodeOf(err) != sandbar.NotFound {
		return driver.Image{}, err
	}
	if e != nil && k.canSubstitute(e) {
		return driver.Image{ID: sandbar.ImageHost, Close: func() {}}, nil
	}
	return driver.Image{}, k.notInstalled(name)
}
