package image

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbar-dev/sandbar"
)

// login writes the registry's password into Docker's configuration.
func (h *hub) login(t *testing.T) {
	t.Helper()
	auths := `{"auths": {"` + h.host + `": {"username": "` + hubUser + `", "password": "` + hubPassword + `"}}}`
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(auths), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pushed image is in the registry under its tag, and under the name that Push returns.
func TestPush(t *testing.T) {
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte("content"), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(t)
	o := PushOptions{Tag: "v7", InsecureRegistries: []string{h.host}}
	if _, err := Push(t.Context(), img, h.host+"/a/b", o); sandbar.CodeOf(err) != sandbar.Denied || !strings.Contains(err.Error(), "docker login") || strings.Contains(err.Error(), hubPassword) {
		t.Errorf("without a login: %v", err)
	}
	h.login(t)
	for given, tag := range map[string]string{"/a/b": "v7", "/a/b:x": "x"} {
		got, err := Push(t.Context(), img, h.host+given, o)
		if err != nil || got != h.host+"/a/b@"+digest.String() {
			t.Fatalf("%q, %v", got, err)
		}
		for _, text := range []string{got, h.host + "/a/b:" + tag} {
			ref, err := name.ParseReference(text, name.Insecure)
			if err != nil {
				t.Fatal(err)
			}
			d, err := remote.Get(ref, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: hubUser, Password: hubPassword})))
			if err != nil || d.Digest != digest {
				t.Errorf("%s: %v, %v", text, d, err)
			}
		}
	}
	for given, want := range map[string]sandbar.Code{
		"":                                 sandbar.Invalid,
		"http://" + h.host + "/a":          sandbar.Invalid,
		h.host + "/a@" + digest.String():   sandbar.Invalid,
		h.host + "/a/b:" + "a tag":         sandbar.Invalid,
		"registry.invalid/a":               sandbar.Unavailable,
		strings.Repeat("a", 600) + "/name": sandbar.Invalid,
	} {
		if _, err := Push(t.Context(), img, given, o); sandbar.CodeOf(err) != want {
			t.Errorf("%q: %v, want %s", given, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Push(ended, img, h.host+"/a", o); sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("canceled: %v", err)
	}
}

// Credentials and images are sent without TLS only to registries that the operator lists.
func TestPushWithoutTLS(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		asked = true
		io.Copy(io.Discard, q.Body)
	}))
	defer s.Close()
	_, err := Push(t.Context(), empty.Image, strings.TrimPrefix(s.URL, "http://")+"/a", PushOptions{})
	if sandbar.CodeOf(err) != sandbar.Denied || !strings.Contains(err.Error(), "images.insecure_registries") || asked {
		t.Errorf("%v; asked: %t", err, asked)
	}
}
