package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
)

// The test binary is the unpacker of its own tests.
func TestMain(m *testing.M) {
	mainOfTests()
	goleak.VerifyTestMain(m)
}

// importText imports an image with one file that has this text.
func importText(t testing.TB, s *Store, name, text string) Image {
	t.Helper()
	i, err := s.Import(t.Context(), bytes.NewReader(archive(t, file("text", text))), ImportOptions{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestFind(t *testing.T) {
	s := newStore(t, Limits{})
	a, b := importText(t, s, "a", "1"), importText(t, s, "ghcr.io/x/b:2", "2")
	for name, want := range map[string]string{
		"a": a.ID, "a:latest": a.ID, "docker.io/library/a": a.ID, a.ID: a.ID, a.ID[7:]: a.ID, a.ID[7:19]: a.ID, a.ID[:19]: a.ID,
		"ghcr.io/x/b:2": b.ID,
	} {
		if i, err := s.Find(name); err != nil || i.ID != want {
			t.Errorf("%s: %s, %v; want %s", name, i.ID, err, want)
		}
	}
	for name, want := range map[string]sandbar.Code{
		"b": sandbar.NotFound, "ghcr.io/x/b": sandbar.NotFound, "a:2": sandbar.NotFound, a.ID[7:18]: sandbar.NotFound,
		"sha256:" + strings.Repeat("0", 64): sandbar.NotFound, strings.Repeat("0", 64): sandbar.NotFound,
		"": sandbar.Invalid, "../images": sandbar.Invalid, "names.json": sandbar.NotFound, "sha256-" + a.ID[7:]: sandbar.NotFound, a.ID + "/root": sandbar.Invalid,
	} {
		if i, err := s.Find(name); sandbar.CodeOf(err) != want {
			t.Errorf("%s: %s, %v; want %s", name, i.ID, err, want)
		}
	}
}

// TestInUse tests that an image in use is not removed.
func TestInUse(t *testing.T) {
	s := newStore(t, Limits{})
	other, err := OpenStore(s.dir, Limits{}) // as in another process
	if err != nil {
		t.Fatal(err)
	}
	importText(t, s, "a", "1")
	i, release, err := s.Use(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, release2, err := s.Use(t.Context(), i.ID)
	if err != nil {
		t.Fatal(err)
	}
	still := func(what string) {
		t.Helper()
		for _, store := range []*Store{s, other} {
			if _, err := store.Remove(t.Context(), "a"); sandbar.CodeOf(err) != sandbar.Conflict {
				t.Errorf("%s: removing it: %v", what, err)
			}
		}
		if images, err := other.List(); err != nil || len(images) != 1 || !images[0].InUse {
			t.Errorf("%s: %+v, %v", what, images, err)
		}
	}
	still("used twice")
	release()
	release() // only the first call has an effect
	still("used once")
	// Not even an image without a name.
	importText(t, s, "a", "2")
	if found, err := other.GC(t.Context(), true); err != nil || slices.ContainsFunc(found, func(l Leftover) bool { return l.Kind == "unnamed" }) {
		t.Errorf("%+v, %v", found, err)
	}
	if b, err := os.ReadFile(filepath.Join(i.Dir, "text")); err != nil || string(b) != "1" {
		t.Errorf("the image in use has %q, %v", b, err)
	}
	release2()
	if found, err := other.GC(t.Context(), true); err != nil || !slices.ContainsFunc(found, func(l Leftover) bool { return l.Kind == "unnamed" && l.Err == nil }) {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := os.Stat(i.Dir); err == nil {
		t.Error("it is still there")
	}
}

func TestRemove(t *testing.T) {
	s := newStore(t, Limits{})
	i := importText(t, s, "a", "1")
	if j := importText(t, s, "b", "1"); j.ID != i.ID || len(j.Names) != 2 {
		t.Errorf("one content is %s and %+v", i.ID, j)
	}
	if removed, err := s.Remove(t.Context(), "a"); removed || err != nil {
		t.Errorf("one of two names: %v, %v", removed, err)
	}
	if _, err := s.Find("a"); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("the removed name: %v", err)
	}
	if removed, err := s.Remove(t.Context(), "b"); !removed || err != nil {
		t.Errorf("the last name: %v, %v", removed, err)
	}
	if removed, err := s.Remove(t.Context(), "b"); removed || sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("again: %v, %v", removed, err)
	}
	importText(t, s, "a", "1")
	importText(t, s, "b", "1")
	if removed, err := s.Remove(t.Context(), i.ID); !removed || err != nil {
		t.Errorf("by its ID: %v, %v", removed, err)
	}
	if images, err := s.List(); err != nil || len(images) != 0 {
		t.Errorf("%v, %v", images, err)
	}
}

// TestGC tests that GC removes a killed process's files, and keeps those of a live one.
func TestGC(t *testing.T) {
	s := newStore(t, Limits{})
	importText(t, s, "a", "1")
	live, err := s.newBuild()
	if err != nil {
		t.Fatal(err)
	}
	defer live.close()
	dead, err := s.newBuild()
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does when a process exits
	young := s.path(tempPrefix + "young")
	old := s.path(tempPrefix + "old")
	for _, dir := range []string{young, old} {
		if err := os.MkdirAll(filepath.Join(dir, "gone", "d"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	dry, err := s.GC(t.Context(), false)
	if err != nil || len(dry) != 2 || !exists(dead.dir) || !exists(old) {
		t.Errorf("%+v, %v; want two, and both still there", dry, err)
	}
	found, err := s.GC(t.Context(), true)
	if err != nil || len(found) != 2 || exists(dead.dir) || exists(old) {
		t.Errorf("%+v, %v; want two, and both gone", found, err)
	}
	if !exists(live.dir) || !exists(young) {
		t.Error("an unfinished image of a live process is gone")
	}
	if err := os.RemoveAll(young); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find("a"); err != nil {
		t.Error(err)
	}
}

// TestStoreRaces uses one store from many goroutines, as two processes would: nothing is lost, and
// every image in use exists.
func TestStoreRaces(t *testing.T) {
	s := newStore(t, Limits{})
	other, err := OpenStore(s.dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	data := archive(t, file("text", "1"))
	var all sync.WaitGroup
	for n := range 6 {
		store := []*Store{s, other}[n%2]
		all.Go(func() {
			for range 5 {
				name := fmt.Sprintf("image%d", n%3)
				if _, err := store.Import(context.Background(), bytes.NewReader(data), ImportOptions{Name: name}); err != nil {
					// It may have been removed between publishing and this lookup.
					if sandbar.CodeOf(err) != sandbar.NotFound {
						t.Error(err)
					}
					continue
				}
				i, release, err := store.Use(context.Background(), name)
				if err == nil {
					if b, err := os.ReadFile(filepath.Join(i.Dir, "text")); err != nil || string(b) != "1" {
						t.Errorf("%q, %v", b, err)
					}
					release()
				} else if sandbar.CodeOf(err) != sandbar.NotFound {
					t.Error(err)
				}
				if _, err := store.Remove(context.Background(), name); err != nil && sandbar.CodeOf(err) != sandbar.NotFound && sandbar.CodeOf(err) != sandbar.Conflict {
					t.Error(err)
				}
				if _, err := store.GC(context.Background(), true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestOpenStoreRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(dir, Limits{}); sandbar.CodeOf(err) != sandbar.Denied {
		t.Errorf("a directory that others may write to: %v", err)
	}
	regular := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(regular, Limits{}); err == nil {
		t.Error("a file is a store")
	}
	s := newStore(t, Limits{})
	if err := os.WriteFile(s.path(namesName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find("a"); sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("damaged names: %v", err)
	}
	if _, err := s.Import(t.Context(), bytes.NewReader(archive(t, file("a", ""))), ImportOptions{Name: "a"}); sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("damaged names are written over: %v", err)
	}
}

// savedArchive returns an archive in the format of docker save, with a link for a layer that two
// images share.
func savedArchive(t testing.TB, images map[string][]byte) []byte {
	t.Helper()
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []entry
	var entries []header
	for _, tag := range slices.Sorted(maps.Keys(images)) {
		layer := images[tag]
		config := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"User":%q},"rootfs":{"type":"layers","diff_ids":[%q]}}`, tag, digestOf(layer))
		name := strings.ReplaceAll(tag, ":", "_")
		entries = append(entries, file(name+".json", config), dir(name), file(name+"/real.tar", string(layer)), symlink(name+"/layer.tar", "real.tar"))
		manifest = append(manifest, entry{name + ".json", []string{tag}, []string{name + "/layer.tar"}})
	}
	b, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, append(entries, file("manifest.json", string(b)))...)
}

func TestImportSaved(t *testing.T) {
	s := newStore(t, Limits{})
	o := ImportOptions{Name: "a", Arch: "amd64"}
	one := savedArchive(t, map[string][]byte{"x:1": archive(t, file("f", "x"))})
	i, err := s.Import(t.Context(), bytes.NewReader(gzipped(t, one)), o)
	if err != nil {
		t.Fatal(err)
	}
	if i.User != "x:1" || listing(t, i.Dir) != "-rw-r--r-- f \"x\"\n" || i.Entries != 1 || i.Size != 1 {
		t.Errorf("%+v:\n%s", i, listing(t, i.Dir))
	}
	two := savedArchive(t, map[string][]byte{"x:1": archive(t, file("f", "x")), "y:2": gzipped(t, archive(t, file("g", "y")))})
	if _, err := s.Import(t.Context(), bytes.NewReader(two), o); sandbar.CodeOf(err) != sandbar.Invalid || !strings.Contains(err.Error(), "y:2") {
		t.Errorf("an archive of two: %v", err)
	}
	o.Pick = "z:3"
	if _, err := s.Import(t.Context(), bytes.NewReader(two), o); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("one that it does not have: %v", err)
	}
	o.Pick = "x:1"
	if j, err := s.Import(t.Context(), bytes.NewReader(two), o); err != nil || j.ID != i.ID {
		t.Errorf("%+v, %v", j, err)
	}
	// This layer's digest is that of its compressed form, which differs.
	o.Pick = "y:2"
	if _, err := s.Import(t.Context(), bytes.NewReader(two), o); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a layer that does not match its digest: %v", err)
	}
	o.Pick, o.Arch = "", "arm64"
	if _, err := s.Import(t.Context(), bytes.NewReader(one), o); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("another processor's: %v", err)
	}
}

// TestImportHostileArchives tests that an archive's statements about its own files are verified.
func TestImportHostileArchives(t *testing.T) {
	outside, untouched := bait(t)
	config := `{"architecture":"amd64","os":"linux","rootfs":{"diff_ids":["` + digestOf(nil) + `"]}}`
	saved := func(manifest string, more ...header) []header {
		return append([]header{file("manifest.json", manifest), file("c", config)}, more...)
	}
	layoutOf := func(index string, more ...header) []header {
		return append([]header{file("oci-layout", "{}"), file("index.json", index)}, more...)
	}
	loop := `{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"%s","size":1}]}`
	for name, entries := range map[string][]header{
		"no JSON":                       saved("{"),
		"no image":                      saved("[]"),
		"a path out":                    saved(`[{"Config":"../../file","Layers":["l"]}]`),
		"an absolute path":              saved(`[{"Config":"` + outside + `/file","Layers":["l"]}]`),
		"a link out":                    saved(`[{"Config":"c2","Layers":["l"]}]`, symlink("c2", filepath.Join(outside, "file"))),
		"a layer that is a link out":    saved(`[{"Config":"c","Layers":["l"]}]`, symlink("l", filepath.Join(outside, "file"))),
		"a layer that is none":          saved(`[{"Config":"c","Layers":["d"]}]`, dir("d")),
		"no layer":                      saved(`[{"Config":"c","Layers":["l"]}]`),
		"fewer layers":                  saved(`[{"Config":"c","Layers":[]}]`),
		"a long configuration":          saved(`[{"Config":"big","Layers":["l"]}]`, file("big", strings.Repeat(" ", maxDocument+1))),
		"an index without JSON":         layoutOf("["),
		"an empty index":                layoutOf(`{"manifests":[]}`),
		"another digest":                layoutOf(fmt.Sprintf(loop, digestOf([]byte("x"))), file("blobs/sha256/"+digestOf([]byte("x"))[7:], "y")),
		"a digest that is a path":       layoutOf(fmt.Sprintf(loop, "sha256:../../../file")),
		"a manifest that is a link out": layoutOf(fmt.Sprintf(loop, digestOf([]byte("bait"))), symlink("blobs/sha256/"+digestOf([]byte("bait"))[7:], filepath.Join(outside, "file"))),
	} {
		t.Run(name, func(t *testing.T) {
			i, err := newStore(t, Limits{}).Import(t.Context(), bytes.NewReader(archive(t, entries...)), ImportOptions{Name: "a", Arch: "amd64"})
			if c := sandbar.CodeOf(err); c != sandbar.Invalid && c != sandbar.Unsupported {
				t.Errorf("%+v, %v", i, err)
			}
			untouched()
		})
	}
}

// layoutEntries returns an OCI layout of an image.
func layoutEntries(t testing.TB, img v1.Image) []header {
	t.Helper()
	blob := func(b []byte) header { return file("blobs/sha256/"+digestOf(b)[7:], string(b)) }
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	entries := []header{file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), blob(manifest), blob(config)}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		entries = append(entries, blob(b.Bytes()))
	}
	inner := fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d,"platform":{"os":"linux","architecture":"amd64"}},`+
		`{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":1,"platform":{"os":"linux","architecture":"arm64"}}]}`, digestOf(manifest), len(manifest), digestOf(nil))
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q,"size":%d,"annotations":{%q:"v1"}}]}`, digestOf(inner), len(inner), refName)
	return append(entries, blob(inner), file("index.json", index))
}

func TestImportLayout(t *testing.T) {
	img := testImage(t, "amd64", archive(t, file("a", "1")), zstandard(t, archive(t, file("b", "2"), file(".wh.a", ""))))
	entries := layoutEntries(t, img)
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, e := range entries {
		p := filepath.Join(dir, e.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(e.content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(t, Limits{})
	check := func(what string, i Image, err error) {
		t.Helper()
		if err != nil || i.ID != id.String() || i.WorkDir != "/app" || listing(t, i.Dir) != "-rw-r--r-- b \"2\"\n" {
			t.Errorf("%s: %+v, %v", what, i, err)
		}
	}
	i, err := s.Import(t.Context(), bytes.NewReader(archive(t, entries...)), ImportOptions{Name: "a", Arch: "amd64"})
	check("archive", i, err)
	i, err = s.ImportDir(t.Context(), dir, ImportOptions{Name: "a", Arch: "amd64", Pick: "v1"})
	check("directory", i, err)
	if _, err := s.ImportDir(t.Context(), dir, ImportOptions{Name: "a", Arch: "amd64", Pick: "v2"}); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("a name that it does not have: %v", err)
	}
	if _, err := s.ImportDir(t.Context(), dir, ImportOptions{Name: "a", Arch: "riscv64"}); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("another processor: %v", err)
	}
	if _, err := s.ImportDir(t.Context(), dir, ImportOptions{Name: "a", Arch: "arm64"}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a manifest that is not there: %v", err)
	}
}

// TestImportDir tests that a directory is copied unchanged, links as links, and that two copies are
// one image.
func TestImportDir(t *testing.T) {
	outside, untouched := bait(t)
	dir := t.TempDir()
	for _, d := range []string{"etc", "empty"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("root"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "file"), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "dir")); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, Limits{})
	i, err := s.ImportDir(t.Context(), dir, ImportOptions{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := "link dir -> " + outside + "\ndrwxr-xr-x empty/\ndrwxr-xr-x etc/\n-rw-r--r-- etc/passwd \"root\"\nlink out -> " + filepath.Join(outside, "file") + "\n"
	if got := listing(t, i.Dir); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if j, err := s.ImportDir(t.Context(), i.Dir, ImportOptions{Name: "b"}); err != nil {
		t.Errorf("a copy of the copy: %+v, %v", j, err)
	}
	untouched()
	for name, o := range map[string]ImportOptions{"no name": {}, "a path": {Name: "../a"}, "a digest": {Name: "a@" + digestOf(nil)}} {
		if _, err := s.ImportDir(t.Context(), dir, o); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.ImportDir(t.Context(), filepath.Join(dir, "nothing"), ImportOptions{Name: "a"}); err == nil {
		t.Error("a directory that does not exist")
	}
	small := newStore(t, Limits{Entries: 2})
	if _, err := small.ImportDir(t.Context(), dir, ImportOptions{Name: "a"}); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("too many files: %v", err)
	}
}
