package image

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func newCatalogue(t testing.TB, c CatalogueConfig) *Catalogue {
	t.Helper()
	if c.Store == nil {
		c.Store = newStore(t, Limits{})
	}
	k, err := NewCatalogue(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCatalogueList(t *testing.T) {
	k := newCatalogue(t, CatalogueConfig{Custom: map[string]string{"zebra": "ghcr.io/a/z:1", "ape": "ghcr.io/a/a:1"}, Allow: []string{"node", "ape"},
		OnHost: func(p string) bool { return p == "node" }})
	if _, err := k.c.Store.Import(t.Context(), bytes.NewReader(archive(t, file("a", ""))), ImportOptions{Name: k.Reference("ape")}); err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Name: "python", Ref: "docker.io/iiidev/python:latest", Kind: "preset", program: "python3"},
		{Name: "node", Ref: "docker.io/iiidev/node:latest", Kind: "preset", Allowed: true, Substitute: true, program: "node"},
		{Name: "ape", Ref: "ghcr.io/a/a:1", Kind: "custom", Allowed: true, Installed: true},
		{Name: "zebra", Ref: "ghcr.io/a/z:1", Kind: "custom"},
	}
	if got := k.List(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestCatalogueRefuses(t *testing.T) {
	for name, c := range map[string]CatalogueConfig{
		"a preset's name":      {Custom: map[string]string{"python": "a"}},
		"no name":              {Custom: map[string]string{"": "a"}},
		"the host's name":      {Custom: map[string]string{"host": "a"}},
		"no reference":         {Custom: map[string]string{"x": ""}},
		"a path":               {Custom: map[string]string{"x": "../../x"}},
		"an unknown allowance": {Allow: []string{"pyhton"}},
		"an unknown cap":       {Caps: map[string]Cap{"x": {}}},
		"a negative cap":       {Caps: map[string]Cap{"node": {CPUs: -1}}},
	} {
		c.Store = newStore(t, Limits{})
		if _, err := NewCatalogue(c); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCatalogueReasons tests every Reason, from its source to an error that protocols can map.
func TestCatalogueReasons(t *testing.T) {
	seen := map[Reason]bool{}
	check := func(what string, err error, want Reason, code sandbar.Code) {
		t.Helper()
		seen[ReasonOf(err)] = true
		r, _ := errors.AsType[*Refusal](err)
		if ReasonOf(err) != want || want != "" && (sandbar.CodeOf(err) != code || r.Err.Message == "" || r.Err.Fix == "" && want != InstallFailed) {
			t.Errorf("%s: %v, reason %q, code %s; want %q, %s", what, err, ReasonOf(err), sandbar.CodeOf(err), want, code)
		}
	}
	h := newHub(t)
	ref := h.push(t, "team/good:1", testImage(t, "amd64", archive(t, file("a", ""))))
	c := CatalogueConfig{Store: newStore(t, Limits{}), Allow: []string{"python", "good", "bad"}, AutoInstall: true, Pull: h.options(),
		Custom: map[string]string{"good": ref, "bad": h.host + "/team/bad:1", "hidden": ref}, Caps: map[string]Cap{"good": {CPUs: 2, MemoryMB: 512}, "bad": {MemoryMB: 1}}}
	k := newCatalogue(t, c)
	for _, name := range []string{"nothing", "hidden", "node", "", "host", ref, "../../x"} {
		_, err := k.Ensure(t.Context(), name, nil)
		check("Ensure "+name, err, Unknown, sandbar.NotFound)
		_, err = k.Open(t.Context(), name)
		check("Open "+name, err, Unknown, sandbar.NotFound)
		check("Check "+name, k.Check(name, 0, 0), Unknown, sandbar.NotFound)
		if strings.Contains(err.Error(), "hidden,") {
			t.Errorf("the error names an image that is not allowed: %v", err)
		}
	}
	for _, tt := range []struct {
		name   string
		cpus   float64
		memory int64
		want   Reason
	}{{"good", 2, 512, ""}, {"good", 0, 0, ""}, {"good", 2.5, 1, OverCap}, {"good", 1, 513, OverCap}, {"bad", 0.1, 1, OverCap}, {"bad", 0, 1, ""}, {"python", 1000, 1 << 40, ""}} {
		check("Check", k.Check(tt.name, tt.cpus, tt.memory), tt.want, sandbar.TooLarge)
	}
	_, err := k.Open(t.Context(), "good")
	check("not yet fetched", err, NotInstalled, sandbar.NotFound)
	_, err = k.Ensure(t.Context(), "bad", nil)
	check("what the registry does not have", err, InstallFailed, sandbar.NotFound)

	c.AutoInstall = false
	manual := newCatalogue(t, c)
	_, err = manual.Ensure(t.Context(), "good", nil)
	check("nobody wants it fetched", err, NotInstalled, sandbar.NotFound)

	var steps int
	ready, err := k.Ensure(t.Context(), "good", func(Progress) { steps++ })
	if err != nil || ready.Image.ID == "" || ready.Substitute || steps == 0 {
		t.Errorf("%+v, %v, %d steps", ready, err, steps)
	}
	i, err := manual.Open(t.Context(), "good")
	if err != nil || i.ID != ready.Image.ID || i.Dir != ready.Image.Dir {
		t.Fatalf("%+v, %v", i, err)
	}
	if _, err := c.Store.Remove(t.Context(), ref); sandbar.CodeOf(err) != sandbar.Conflict {
		t.Errorf("removed while it is open: %v", err)
	}
	i.Close()
	if removed, err := c.Store.Remove(t.Context(), ref); !removed || err != nil {
		t.Errorf("%v, %v", removed, err)
	}
	for _, r := range Reasons {
		if !seen[r] {
			t.Errorf("%s was not seen", r)
		}
	}
	if ReasonOf(errors.New("x")) != "" || ReasonOf(nil) != "" {
		t.Error("another error has a reason")
	}
}

// TestSubstitute tests that the host's programs substitute for an image that is not installed if
// the host has the interpreter, without a download, and that this is reported. An installed image
// comes first.
func TestSubstitute(t *testing.T) {
	k := newCatalogue(t, CatalogueConfig{Allow: []string{"python", "node"}, AutoInstall: true, OnHost: func(p string) bool { return p == "python3" },
		Pull: PullOptions{Registries: []string{"none.invalid"}}})
	r, err := k.Ensure(t.Context(), "python", nil)
	if err != nil || !r.Substitute || !strings.Contains(r.Note, "python3") || r.Image.ID != "" {
		t.Errorf("%+v, %v", r, err)
	}
	i, err := k.Open(t.Context(), "python")
	if err != nil || i.Dir != "" {
		t.Fatalf("%+v, %v", i, err)
	}
	i.Close()
	if _, err := k.c.Store.Import(t.Context(), bytes.NewReader(archive(t, file("a", ""))), ImportOptions{Name: k.Reference("python")}); err != nil {
		t.Fatal(err)
	}
	if r, err = k.Ensure(t.Context(), "python", nil); err != nil || r.Substitute || r.Note != "" || r.Image.ID == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if i, err = k.Open(t.Context(), "python"); err != nil || i.Dir == "" {
		t.Fatalf("%+v, %v", i, err)
	}
	i.Close()
}

// TestUnrestricted tests that the host's owner may use every image in the store, and that a name
// without a registry is not fetched.
func TestUnrestricted(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "team/tool:1", testImage(t, "amd64", archive(t, file("a", ""))))
	k := newCatalogue(t, CatalogueConfig{Unrestricted: true, AutoInstall: true, Pull: h.options()})
	if _, err := k.Ensure(t.Context(), "lsof", nil); ReasonOf(err) != NotInstalled {
		t.Errorf("a name without a registry: %v", err)
	}
	r, err := k.Ensure(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ref, r.Image.ID} {
		i, err := k.Open(t.Context(), name)
		if err != nil || i.ID != r.Image.ID {
			t.Fatalf("%s: %+v, %v", name, i, err)
		}
		i.Close()
	}
	if _, err := k.Open(t.Context(), "../../etc"); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
}
