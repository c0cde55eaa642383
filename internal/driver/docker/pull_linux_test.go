package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// registry serves one image of one file, and counts who asks for its manifest. Docker Engines speak
// plain HTTP to registries on loopback.
func registry(t *testing.T) (ref string, asked *atomic.Int64) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 5}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "world")
	w.Close()
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	type object = map[string]any
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	config := encode(object{"architecture": runtime.GOARCH, "os": "linux", "config": object{}, "rootfs": object{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}}})
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest := encode(object{"schemaVersion": 2, "mediaType": kind,
		"config": object{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)},
		"layers": []object{{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(layer.Bytes()), "size": layer.Len()}}})
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.URL.Path == "/v2/":
		case strings.HasPrefix(r.URL.Path, "/v2/some/image/manifests/") && (name == "1" || name == digest(manifest)):
			asked.Add(1)
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			w.Write(manifest)
		case name == digest(config):
			w.Write(config)
		case name == digest(layer.Bytes()):
			w.Write(layer.Bytes())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/some/image:1", asked
}

// With the option pull=missing the engine pulls missing images once. Otherwise it pulls nothing.
func TestPull(t *testing.T) {
	host := engineHost(t)
	ref, asked := registry(t)
	with := func(pull, image string) (*Driver, error) {
		return New(driver.Host{Options: map[string]string{optionHost: host, optionImage: image, optionPull: pull}}, agentBinary(t))
	}
	for _, tt := range []struct {
		pull  string
		found bool
	}{{"", false}, {"never", false}, {"missing", true}, {"missing", true}} {
		before := asked.Load()
		d, err := with(tt.pull, ref)
		if err != nil {
			t.Fatal(err)
		}
		_, found, err := d.engine.image(context.Background(), ref)
		if err != nil || found != tt.found {
			t.Errorf("pull %q: the engine has the image: %v, %v", tt.pull, found, err)
		}
		if !tt.found && asked.Load() != before {
			t.Errorf("pull %q: the registry was asked", tt.pull)
		}
		d.Close()
	}
	first := asked.Load()
	d, err := with("missing", ref)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if n := asked.Load(); first == 0 || n != first {
		t.Errorf("the registry was asked %d times, and %d more when the image was there", first, n-first)
	}
	_, err = with("missing", strings.Replace(ref, ":1", ":2", 1))
	if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.Unavailable || !strings.Contains(e.Fix, "docker pull") {
		t.Errorf("an image that is nowhere: %v", err)
	}
	if _, err := with("always", ref); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("always: %v", err)
	}
}
