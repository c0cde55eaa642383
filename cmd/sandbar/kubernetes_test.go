package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	hubs "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The image in an archive, in a registry and in the driver's default has one digest.
func TestKubernetesImage(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	read := func(pkg string) []byte {
		b, err := os.ReadFile(testenv.Build(t, pkg))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	programs := agentimage.Programs{Agent: read("cmd/sandbar-agent"), Porter: read("cmd/sandbar-porter")}
	works := func(args ...string) (stdout string) {
		t.Helper()
		code, out, errs := invocation{args: append([]string{"kubernetes", "image"}, args...), programs: programs}.run(t)
		if code != 0 {
			t.Fatalf("%v: exit code %d, %s", args, code, errs)
		}
		return out
	}
	want := strings.TrimSpace(works("show"))
	digest, ok := strings.CutPrefix(want, agentimage.Repository+"@")
	var report agentImageReport
	if err := json.Unmarshal([]byte(works("show", "--json")), &report); err != nil || !ok || report.Digest != digest || report.Name != want || report.Size == 0 {
		t.Errorf("%s, %+v, %v", want, report, err)
	}

	if daemon := works("show", "--daemon"); !strings.HasPrefix(daemon, agentimage.DaemonRepository+"@sha256:") {
		t.Errorf("the daemon's image is %s", daemon)
	}

	file := filepath.Join(t.TempDir(), "agent.tar")
	works("load", "--output", file)
	if b, err := os.ReadFile(file); err != nil || works("load") != string(b) {
		t.Errorf("the archive on standard output is another one, %v", err)
	}
	if _, err := tarball.ImageFromPath(file, nil); err != nil {
		t.Error(err)
	}
	if code, _, errs := (invocation{args: []string{"kubernetes", "image", "load", "-o", "/none/agent.tar"}, programs: programs}).run(t); code != 1 || !strings.Contains(errs, "/none/agent.tar") {
		t.Errorf("a file that cannot be created: %d, %s", code, errs)
	}

	t.Setenv("DOCKER_CONFIG", t.TempDir())
	hub := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer hub.Close()
	host := strings.TrimPrefix(hub.URL, "http://")
	push := invocation{args: []string{"kubernetes", "image", "push", host + "/team/agent"}, programs: programs}
	if code, _, errs := push.run(t); code != 1 || !strings.Contains(errs, "images.insecure_registries") {
		t.Errorf("a registry without TLS: %d, %s", code, errs)
	}
	push.environ = []string{"SANDBAR_IMAGES_INSECURE_REGISTRIES=" + host}
	code, pushed, errs := push.run(t)
	if code != 0 || pushed != host+"/team/agent@"+digest+"\n" {
		t.Fatalf("%d, %q, %s", code, pushed, errs)
	}
	ref, err := name.ParseReference(strings.TrimSpace(pushed))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := hubs.Get(ref); err != nil || d.Digest.String() != digest {
		t.Errorf("%+v, %v", d, err)
	}
}
