package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbar-dev/sandbar"
)

// hub is a registry on loopback that requires a password and can send wrong responses.
type hub struct {
	*httptest.Server
	host  string
	blobs atomic.Int64 // successful requests for blobs
	// spoil, if set, may change a response.
	spoil func(w http.ResponseWriter, q *http.Request, next http.Handler)
}

const hubUser, hubPassword = "reader", "a secret"

func newHub(t *testing.T) *hub {
	t.Helper()
	// The registry logins of the user who runs the tests must not be used.
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := &hub{}
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, _ := q.BasicAuth(); user != hubUser || password != hubPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
			h.blobs.Add(1)
		}
		if h.spoil != nil {
			h.spoil(w, q, next)
			return
		}
		next.ServeHTTP(w, q)
	}))
	t.Cleanup(h.Close)
	h.host = strings.TrimPrefix(h.URL, "http://")
	return h
}

// options returns the options for a pull from h.
func (h *hub) options() PullOptions {
	return PullOptions{Credentials: &Credentials{User: hubUser, Password: hubPassword}, InsecureRegistries: []string{h.host}, Arch: "amd64"}
}

// push uploads an image to the registry and returns its reference.
func (h *hub) push(t *testing.T, name string, img v1.Image) string {
	t.Helper()
	return pushAny(t, h, name, func(ref reference, options ...remote.Option) error { return remote.Write(ref, img, options...) })
}

func (h *hub) pushIndex(t *testing.T, name string, index v1.ImageIndex) string {
	t.Helper()
	return pushAny(t, h, name, func(ref reference, options ...remote.Option) error { return remote.WriteIndex(ref, index, options...) })
}

type reference = name.Reference

func pushAny(t *testing.T, h *hub, repo string, push func(reference, ...remote.Option) error) string {
	t.Helper()
	ref, err := name.ParseReference(h.host+"/"+repo, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := push(ref, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: hubUser, Password: hubPassword}))); err != nil {
		t.Fatal(err)
	}
	return h.host + "/" + repo
}

// testImage returns an image of these layers, for an architecture.
func testImage(t testing.TB, arch string, layers ...[]byte) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for i, b := range layers {
		media := types.OCILayer
		if bytes.HasPrefix(b, []byte{0x28, 0xb5}) {
			media = types.OCILayerZStd
		} else if i%2 == 1 {
			b = gzipped(t, b)
		}
		var err error
		if img, err = mutate.Append(img, mutate.Addendum{Layer: asIs(t, b, media)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	c.Config.Env, c.Config.WorkingDir, c.Config.Cmd = []string{"PATH=/opt/bin"}, "/app", []string{"sh"}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// asIs returns a layer whose bytes are transferred unchanged.
func asIs(t testing.TB, b []byte, media types.MediaType) v1.Layer {
	t.Helper()
	compressed := static.NewLayer(b, media)
	plain, err := decompress(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	all, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	id, err := v1.NewHash(digestOf(all))
	if err != nil {
		t.Fatal(err)
	}
	return layerOf{compressed, id}
}

// layerOf is a layer with the digest of its decompressed content.
type layerOf struct {
	v1.Layer
	diffID v1.Hash
}

func (l layerOf) DiffID() (v1.Hash, error) { return l.diffID, nil }

func TestPull(t *testing.T) {
	h := newHub(t)
	img := testImage(t, "amd64",
		archive(t, dir("bin"), file("bin/sh", "#!"), file("old", "")),
		archive(t, file("new", "2"), file(".wh.old", "")),
		zstandard(t, archive(t, file("z", "3"))))
	ref := h.push(t, "team/tool:1", img)
	s := newStore(t, Limits{})
	o := h.options()
	var steps []string
	var last Progress
	o.Progress = func(p Progress) {
		if !slices.Contains(steps, p.Step) {
			steps = append(steps, p.Step)
		}
		last = p
	}
	i, err := s.Pull(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, i.Dir), "drwxr-xr-x bin/\n-rw-r--r-- bin/sh \"#!\"\n-rw-r--r-- new \"2\"\n-rw-r--r-- z \"3\"\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if id, err := img.ConfigName(); err != nil || i.ID != id.String() {
		t.Errorf("ID %s, want %v (%v)", i.ID, id, err)
	}
	if i.WorkDir != "/app" || !slices.Equal(i.Env, []string{"PATH=/opt/bin"}) || !slices.Equal(i.Cmd, []string{"sh"}) || i.Arch != "amd64" || i.Entries != 6 || i.Size != 4 {
		t.Errorf("%+v", i)
	}
	if !slices.Equal(steps, []string{"resolve", "fetch", "done"}) || last.Layers != 3 || last.Layer != 3 || last.Bytes != last.Total || last.Total == 0 {
		t.Errorf("steps %v, at the end %+v", steps, last)
	}
	n := h.blobs.Load()
	again, err := s.Pull(t.Context(), ref, h.options())
	if err != nil || again.ID != i.ID || h.blobs.Load() != n {
		t.Errorf("pulled again: %v, %v, %d requests for content", again.ID, err, h.blobs.Load()-n)
	}
	// The same image under another name costs no download of a layer.
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Pull(t.Context(), h.host+"/team/tool@"+digest.String(), h.options())
	if err != nil || other.ID != i.ID || h.blobs.Load() != n || len(other.Names) != 1 {
		t.Errorf("by digest: %+v, %v, %d requests for content", other, err, h.blobs.Load()-n)
	}
}

// TestPullFresh tests that a moved tag leads to the new image with Fresh.
func TestPullFresh(t *testing.T) {
	h, s := newHub(t), newStore(t, Limits{})
	ref := h.push(t, "a:latest", testImage(t, "amd64", archive(t, file("v", "1"))))
	one, err := s.Pull(t.Context(), ref, h.options())
	if err != nil {
		t.Fatal(err)
	}
	h.push(t, "a:latest", testImage(t, "amd64", archive(t, file("v", "2"))))
	o := h.options()
	if same, err := s.Pull(t.Context(), ref, o); err != nil || same.ID != one.ID {
		t.Errorf("%v, %v; want the stored image", same.ID, err)
	}
	o.Fresh = true
	two, err := s.Pull(t.Context(), ref, o)
	if err != nil || two.ID == one.ID {
		t.Fatalf("%v, %v; want another", two.ID, err)
	}
	found, err := s.GC(t.Context(), true)
	if err != nil || !slices.ContainsFunc(found, func(l Leftover) bool { return l.Kind == "unnamed" && l.Name == one.ID && l.Err == nil }) {
		t.Errorf("%+v, %v; want the one that has lost its name", found, err)
	}
	if images, err := s.List(); err != nil || len(images) != 1 || images[0].ID != two.ID {
		t.Errorf("%v, %v", images, err)
	}
}

func TestPullPlatforms(t *testing.T) {
	h, s := newHub(t), newStore(t, Limits{})
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"arm64", "amd64"} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: testImage(t, arch, archive(t, file("arch", arch))),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	ref := h.pushIndex(t, "multi:1", index)
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		o := h.options()
		o.Arch, o.Fresh = arch, true
		i, err := s.Pull(t.Context(), ref, o)
		if arch == "s390x" {
			if sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "arm64") {
				t.Errorf("%v; want one that lists the platforms", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := listing(t, i.Dir); !strings.Contains(got, arch) {
			t.Errorf("%s: %s", arch, got)
		}
	}
	alone := h.push(t, "alone:1", testImage(t, "arm64", archive(t, file("a", ""))))
	if _, err := s.Pull(t.Context(), alone, h.options()); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("an image for another processor: %v", err)
	}
}

// TestPullRefused tests wrong credentials and references.
func TestPullRefused(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "a:1", testImage(t, "amd64", archive(t, file("a", ""))))
	for _, tt := range []struct {
		name, ref string
		change    func(*PullOptions)
		code      sandbar.Code
	}{
		{"no password", ref, func(o *PullOptions) { o.Credentials = nil }, sandbar.Denied},
		{"a wrong password", ref, func(o *PullOptions) { o.Credentials.Password = "guess" }, sandbar.Denied},
		{"no such image", h.host + "/b:1", func(*PullOptions) {}, sandbar.NotFound},
		{"no such tag", h.host + "/a:2", func(*PullOptions) {}, sandbar.NotFound},
		{"loopback that is not listed", ref, func(o *PullOptions) { o.InsecureRegistries = nil }, sandbar.Denied},
		{"loopback by another name", strings.Replace(ref, "127.0.0.1", "localhost", 1), func(*PullOptions) {}, sandbar.Denied},
		{"plain HTTP that is not listed", ref, func(o *PullOptions) { o.InsecureRegistries, o.Registries = nil, []string{h.host} }, sandbar.Denied},
		{"metadata", "169.254.169.254/latest/meta-data:v1", func(*PullOptions) {}, sandbar.Denied},
		{"a private network", "10.1.2.3/a:1", func(*PullOptions) {}, sandbar.Denied},
		{"IPv6 loopback", "[::1]:5000/a:1", func(*PullOptions) {}, sandbar.Denied},
		{"a path", "../../etc/passwd", func(*PullOptions) {}, sandbar.Invalid},
		{"a file", "file:///etc/passwd", func(*PullOptions) {}, sandbar.Invalid},
		{"a URL", "http://169.254.169.254/latest", func(*PullOptions) {}, sandbar.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t, Limits{})
			o := h.options()
			tt.change(&o)
			_, err := s.Pull(t.Context(), tt.ref, o)
			if sandbar.CodeOf(err) != tt.code {
				t.Errorf("%v, code %s, want %s", err, sandbar.CodeOf(err), tt.code)
			}
			if err != nil && strings.Contains(err.Error(), hubPassword) {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

// TestPullRedirected tests that a registry on loopback cannot redirect to addresses that would
// otherwise be refused.
func TestPullRedirected(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "a:1", testImage(t, "amd64", archive(t, file("a", ""))))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			t.Error("the redirect was followed")
			c.Close()
		}
	}()
	for _, to := range []string{"http://" + l.Addr().String() + "/x", "https://" + l.Addr().String() + "/x", "http://169.254.169.254/latest", "file:///etc/passwd"} {
		h.spoil = func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
				http.Redirect(w, q, to, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, q)
		}
		if _, err := newStore(t, Limits{}).Pull(t.Context(), ref, h.options()); sandbar.CodeOf(err) != sandbar.Denied && !strings.HasPrefix(to, "file") || err == nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestPullWrongDigests tests that content with a wrong digest is refused: manifest, configuration,
// layer, and decompressed layer.
func TestPullWrongDigests(t *testing.T) {
	h := newHub(t)
	img := testImage(t, "amd64", archive(t, file("a", "the right one")))
	ref := h.push(t, "a:1", img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	wrong := archive(t, file("a", "the wrong one"))
	lie := func(part string, b []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if q.Method != http.MethodGet || !strings.Contains(q.URL.Path, part) {
				next.ServeHTTP(w, q)
				return
			}
			var kept recordedResponse
			next.ServeHTTP(&kept, q)
			w.Header().Set("Content-Type", kept.Header().Get("Content-Type"))
			_, _ = w.Write(b)
		}
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, ref string
		spoil     func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		{"manifest", h.host + "/a@" + digest.String(), lie("/manifests/", append(manifest, ' '))},
		{"configuration", ref, lie(m.Config.Digest.Hex, bytes.Replace(raw, []byte("/app"), []byte("/bad"), 1))},
		{"layer", ref, lie(m.Layers[0].Digest.Hex, wrong)},
		{"a layer cut short", ref, lie(m.Layers[0].Digest.Hex, wrong[:1000])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.spoil = tt.spoil
			defer func() { h.spoil = nil }()
			s := newStore(t, Limits{})
			i, err := s.Pull(t.Context(), tt.ref, h.options())
			if sandbar.CodeOf(err) != sandbar.Invalid {
				t.Errorf("%v, %v (code %s)", i, err, sandbar.CodeOf(err))
			}
			if images, err := s.List(); err != nil || len(images) != 0 {
				t.Errorf("%v, %v are in the store", images, err)
			}
		})
	}
	t.Run("decompressed", func(t *testing.T) {
		l := layerOf{static.NewLayer(wrong, types.OCILayer), v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
		img, err := mutate.AppendLayers(testImage(t, "amd64"), l)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := newStore(t, Limits{}).Pull(t.Context(), h.push(t, "b:1", img), h.options()); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%v, %v", i, err)
		}
	})
}

// recordedResponse records a response.
type recordedResponse struct{ httptest.ResponseRecorder }

// TestPullRetries tests that a broken connection is retried, for the affected layer only.
func TestPullRetries(t *testing.T) {
	h := newHub(t)
	img := testImage(t, "amd64", archive(t, file("a", "1")), archive(t, file("b", "2")))
	ref := h.push(t, "a:1", img)
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Int64
	h.spoil = func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, m.Layers[1].Digest.Hex) && broken.Add(1) < layerTries {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("cut"))
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, q)
	}
	s := newStore(t, Limits{Entries: 2})
	if i, err := s.Pull(t.Context(), ref, h.options()); err != nil || i.Entries != 2 {
		t.Errorf("%+v, %v", i, err)
	}
	if n := broken.Load(); n != layerTries {
		t.Errorf("the layer was asked for %d times", n)
	}
}

// TestPullLimits tests that the sizes in a manifest serve only to refuse it early.
func TestPullLimits(t *testing.T) {
	h := newHub(t)
	big := h.push(t, "big:1", testImage(t, "amd64", archive(t, file("a", strings.Repeat("x", 2<<20)))))
	many := h.push(t, "many:1", testImage(t, "amd64", archive(t), archive(t, file("a", "")), archive(t, file("b", ""))))
	for name, tt := range map[string]struct {
		ref    string
		limits Limits
	}{
		"bytes":   {big, Limits{Bytes: 1 << 20}},
		"layers":  {many, Limits{Layers: 2}},
		"entries": {many, Limits{Entries: 1}},
	} {
		h.blobs.Store(0)
		if _, err := newStore(t, tt.limits).Pull(t.Context(), tt.ref, h.options()); sandbar.CodeOf(err) != sandbar.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if n := h.blobs.Load(); n > 0 && name != "entries" {
			t.Errorf("%s: %d requests for content before it was refused", name, n)
		}
	}
	h.spoil = func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			_, _ = io.Copy(w, io.MultiReader(strings.NewReader(`{"x":"`), zeros(64<<20)))
			return
		}
		next.ServeHTTP(w, q)
	}
	if _, err := newStore(t, Limits{}).Pull(t.Context(), big, h.options()); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Errorf("an endless manifest: %v", err)
	}
}

// TestPullOnce tests that many pulls of one image, by two processes, download it once.
func TestPullOnce(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "a:1", testImage(t, "amd64", archive(t, file("a", "1"))))
	s := newStore(t, Limits{})
	other, err := OpenStore(s.dir, Limits{}) // as in another process
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if _, err := []*Store{s, other}[n%2].Pull(t.Context(), ref, h.options()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := h.blobs.Load(); n != 2 { // configuration and layer
		t.Errorf("%d requests for content", n)
	}
}

// TestPullCanceled tests that a canceled pull leaves nothing.
func TestPullCanceled(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "a:1", testImage(t, "amd64", archive(t, file("a", "1"))))
	ctx, cancel := context.WithCancel(t.Context())
	h.spoil = func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/") {
			cancel()
			<-q.Context().Done()
			return
		}
		next.ServeHTTP(w, q)
	}
	s := newStore(t, Limits{})
	if _, err := s.Pull(ctx, ref, h.options()); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("%v", err)
	}
}

// TestPullWithDockersPassword tests that the password can come from Docker's configuration.
func TestPullWithDockersPassword(t *testing.T) {
	h := newHub(t)
	ref := h.push(t, "a:1", testImage(t, "amd64", archive(t, file("a", "1"))))
	text := `{"auths":{"` + h.host + `":{"username":"` + hubUser + `","password":"` + hubPassword + `"}}}`
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := h.options()
	o.Credentials = nil
	if _, err := newStore(t, Limits{}).Pull(t.Context(), ref, o); err != nil {
		t.Error(err)
	}
}

func TestReferences(t *testing.T) {
	zero := "sha256:" + strings.Repeat("0", 64)
	for s, want := range map[string]string{
		"debian":                  "index.docker.io/library/debian:latest",
		"docker.io/a/b:1":         "index.docker.io/a/b:1",
		"ghcr.io/a/b/c":           "ghcr.io/a/b/c:latest",
		"localhost:5000/a":        "localhost:5000/a:latest",
		"[::1]:5000/a:x":          "[::1]:5000/a:x",
		"h.example/a@" + zero:     "h.example/a@" + zero,
		"h.example/a:tag@" + zero: "h.example/a@" + zero,
	} {
		if r, err := ParseReference(s); err != nil || r.Text != want {
			t.Errorf("%s: %s, %v; want %s", s, r.Text, err, want)
		}
	}
	for _, s := range []string{"", ".", "..", "../x", "../../x", "a/../b", "a/./b", "/etc/passwd", "./x", "a//b", "a/", "file:///x", "file://x", "http://h/x",
		"docker://debian", "a b", "A", "a:b:c", "a@sha256:00", "a@md5:" + strings.Repeat("0", 32), "a:" + strings.Repeat("t", 200), strings.Repeat("a/", 300) + "a",
		"a\x00b", "a\nb", "h:99999999999/a b", "a?x=y", "user:pass@h/a"} {
		if r, err := ParseReference(s); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%q: %v, %v", s, r.Text, err)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for s, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "127.8.8.8": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false, "172.32.0.1": true, "192.168.1.1": false,
		"169.254.169.254": false, "169.254.170.2": false, "100.100.100.200": false, "100.64.0.1": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "::": false, "::1": false, "fe80::1": false, "fd00:ec2::254": false, "fc00::1": false,
		"ff02::1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::a9fe:a9fe": false, "2002:7f00:1::": false,
		"::7f00:1": false, "fec0::1": false, "2001:db8::1": false,
	} {
		if got := publicAddress(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s: public %v, want %v", s, got, want)
		}
	}
	if publicAddress(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// The test images implement partial.WithDiffID.
var _ partial.WithDiffID = layerOf{}

// isDenied also finds errors that passed through an HTTP client.
func isDenied(err error) bool {
	e, ok := errors.AsType[*sandbar.Error](err)
	return ok && e.Code == sandbar.Denied
}

// TestDialled tests that a name that resolves to a non-public address is refused when it is
// dialled, whatever it resolved to before.
func TestDialled(t *testing.T) {
	if c, err := (registries{}).dial(t.Context(), "localhost:1"); !isDenied(err) {
		t.Errorf("%v, %v", c, err)
	}
}
