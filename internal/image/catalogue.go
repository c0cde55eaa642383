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

// Preset is an image that every catalogue has.
type Preset struct {
	// Name is what callers say, Ref the reference it stands for.
	Name, Ref string
	// Program is what callers want of it: a host that has it can stand in for
	// the image.
	Program string
}

// Presets are the images that every catalogue has, in the order of the iii
// protocol.
func Presets() []Preset {
	return []Preset{
		{"python", "docker.io/iiidev/python:latest", "python3"},
		{"node", "docker.io/iiidev/node:latest", "node"},
	}
}

// Cap is the most that a sandbox of one image may ask for. What is not set is 0,
// and then nothing may be asked for, as in the iii protocol.
type Cap struct {
	CPUs     float64
	MemoryMB int64
}

// CatalogueConfig is the operator's choice. The names of fields in the iii
// protocol's configuration stand in parentheses.
type CatalogueConfig struct {
	// Store is where images are. Never nil.
	Store *Store
	// AutoInstall has Ensure fetch what is not in the store (auto_install).
	AutoInstall bool
	// Allow lists the names that may be used; what is not in it may not, so
	// that nothing may where it is empty (image_allowlist).
	Allow []string
	// Custom are names beside the presets, and what they stand for
	// (custom_images).
	Custom map[string]string
	// Caps bound what may be asked for with some images (per_image_caps).
	Caps map[string]Cap
	// Pull says how images are fetched.
	Pull PullOptions
	// OnHost reports whether sandboxes of the image "host" have a program. Nil:
	// the host stands in for no image.
	OnHost func(program string) bool
	// Unrestricted is for whoever owns the host: every name of the catalogue
	// and every image of the store may be used, allowed or not.
	Unrestricted bool
}

// Entry is one row of a catalogue.
type Entry struct {
	Name string `json:"name"`
	// Ref is the reference that the name stands for.
	Ref string `json:"oci_ref"`
	// Kind is "preset" or "custom".
	Kind string `json:"kind"`
	// Allowed reports whether the operator lets it be used.
	Allowed bool `json:"allowed"`
	// Installed reports whether it is in the store.
	Installed bool `json:"installed"`
	// Substitute reports that it is not, and that the host stands in for it.
	Substitute bool `json:"substitute"`

	program string
}

// Reason says why a catalogue does not give an image, closed: protocols have
// codes for each.
type Reason string

// The reasons.
const (
	// Unknown: no such name, or the operator does not allow it. Callers cannot
	// tell which. (S100 of the iii protocol.)
	Unknown Reason = "unknown"
	// NotInstalled: it is not in the store, and is not fetched by itself. (S101)
	NotInstalled Reason = "not_installed"
	// InstallFailed: it could not be fetched. (S102)
	InstallFailed Reason = "install_failed"
	// OverCap: more was asked for than may be with this image. (S400)
	OverCap Reason = "over_cap"
)

// Reasons is every Reason, for tables and the tests that walk them.
var Reasons = []Reason{Unknown, NotInstalled, InstallFailed, OverCap}

// Refusal is an error with a Reason. A *sandbar.Error is in its chain.
type Refusal struct {
	Reason Reason
	Name   string // of the image
	Err    *sandbar.Error
}

// Error returns the text of the error within.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error within.
func (r *Refusal) Unwrap() error { return r.Err }

// ReasonOf returns the Reason of an error, "" if it is no Refusal.
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Reason
	}
	return ""
}

// Catalogue is the operator's choice of images. Its methods may be called
// concurrently.
type Catalogue struct {
	c       CatalogueConfig
	entries []Entry
}

var _ driver.Images = (*Catalogue)(nil)

// NewCatalogue checks the configuration: Invalid for a custom image without a
// name, with the name of a preset or of the image "host", or with a reference
// that is none, for a name in Allow or Caps that nothing has, and for a negative
// cap.
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

// List returns the rows: presets first, then custom images by name.
func (k *Catalogue) List() []Entry {
	out := slices.Clone(k.entries)
	for i := range out {
		_, err := k.c.Store.Find(out[i].Ref)
		out[i].Installed = err == nil
		out[i].Substitute = !out[i].Installed && k.standsIn(&out[i])
	}
	return out
}

// Reference returns the reference that a name stands for: that of the catalogue,
// or the name itself.
func (k *Catalogue) Reference(name string) string {
	if e := k.find(name); e != nil {
		return e.Ref
	}
	return name
}

// standsIn reports whether the host has what is wanted of an image.
func (k *Catalogue) standsIn(e *Entry) bool {
	return e.program != "" && k.c.OnHost != nil && k.c.OnHost(e.program)
}

// Check refuses what may not be asked for, before anything is fetched: a
// Refusal that is Unknown, or OverCap for more processors or memory than the
// image's caps. What is not asked for (0) is not checked.
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

// lookup finds what may be used: a row, or nil for an image of the store by a
// name of its own.
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
		Message: "image " + sandbar.Quote(name, 100) + " is not one that may be used; there are " + k.list(allowed),
		Fix:     "use one of them, or have the operator add it to custom_images and image_allowlist"}}
}

// Ready is an image that sandboxes can be made of.
type Ready struct {
	// Image is what the store has; its zero value for a Substitute.
	Image Image
	// Substitute: the image is not installed, and the host stands in for it.
	Substitute bool
	// Note is a sentence about that for whoever asked, "" if there is nothing
	// to say.
	Note string
}

// Ensure has an image ready for use, fetching it if there is none and the
// operator wants that; progress, if not nil, is told how far. The image can be
// removed at any time; Open is what keeps it.
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
	case e != nil && k.standsIn(e):
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
	if e != nil && k.standsIn(e) {
		return driver.Image{ID: sandbar.ImageHost, Close: func() {}}, nil
	}
	return driver.Image{}, k.notInstalled(name)
}
