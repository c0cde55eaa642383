package agentimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sandbar-dev/sandbar"
)

// program returns the header of an executable for Linux on a processor, with its name after it.
func program(machine byte, name string) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01") // 64 bits, little endian
	b[16], b[18], b[20] = 2, machine, 1
	b[52], b[54], b[58] = 64, 56, 64 // sizes of headers
	return append(b, name...)
}

// The machines of ELF.
const (
	amd64 = 62
	arm64 = 183
	riscv = 243
)

// The digest follows from the programs alone. It is written down here, so that a change of the
// format, with which every node must get the image again, is noticed.
func TestDigest(t *testing.T) {
	for machine, want := range map[byte]struct{ arch, digest string }{
		amd64: {"amd64", "sha256:26f8afb39a87ad4bbf7b4760e376961540eee4a5f01fdd34366951fd951dbf3a"},
		arm64: {"arm64", "sha256:80c03def873af3c196fd8e9b3b0862342fa920015ae7841f03d2cc8f8b0c8132"},
	} {
		i, err := Build(Programs{Agent: program(machine, "agent"), Porter: program(machine, "porter")})
		if err != nil {
			t.Fatal(err)
		}
		if i.Arch != want.arch || i.Digest != want.digest || i.Name() != Repository+"@"+want.digest || !Named("image "+i.Name()) {
			t.Errorf("%s %s %s", i.Arch, i.Digest, i.Name())
		}
		if err := validate.Image(i.V1, validate.Fast); err != nil {
			t.Error(err)
		}
		other, err := Build(Programs{Agent: program(machine, "agent"), Porter: program(machine, "another")})
		if err != nil || other.Digest == i.Digest {
			t.Errorf("another porter has the same digest %s, %v", other.Digest, err)
		}
	}
}

// The daemon's image runs it as an ordinary user.
func TestDaemon(t *testing.T) {
	i, err := BuildDaemon(program(arm64, "sandbar"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.V1.ConfigFile()
	if err != nil || c.Architecture != "arm64" || c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != "/sandbar" || i.Name() != "localhost/sandbar@"+i.Digest || Named(i.Name()) {
		t.Errorf("%s: %+v, %v", i.Name(), c, err)
	}
	if _, err := BuildDaemon([]byte("MZ")); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Error(err)
	}
}

func TestBuildErrors(t *testing.T) {
	good := program(amd64, "")
	for name, p := range map[string]Programs{
		"nothing":              {},
		"no porter":            {Agent: good},
		"no agent":             {Porter: good},
		"not for Linux":        {Agent: []byte("MZ"), Porter: good},
		"a script":             {Agent: good, Porter: []byte("#!/bin/sh\n")},
		"different processors": {Agent: good, Porter: program(arm64, "")},
		"another processor":    {Agent: program(riscv, ""), Porter: program(riscv, "")},
	} {
		if _, err := Build(p); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An archive is both an OCI layout and one of "docker save", and has the image under both names.
func TestArchive(t *testing.T) {
	p := Programs{Agent: program(amd64, "agent"), Porter: program(amd64, "porter")}
	i, err := Build(p)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := i.WriteArchive(&archive, "v1.2+dirty"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	docker, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := docker.ConfigFile()
	if err != nil || config.Architecture != "amd64" || config.OS != "linux" || len(config.RootFS.DiffIDs) != 1 {
		t.Errorf("configuration %+v, %v", config, err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if hex, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok && hex != fmt.Sprintf("%x", sha256.Sum256(files[h.Name])) {
			t.Errorf("%s has another digest", h.Name)
		}
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil || files["oci-layout"] == nil {
		t.Fatalf("%v; %s", err, files["oci-layout"])
	}
	names := map[string]bool{}
	for _, d := range index.Manifests {
		names[d.Annotations["io.containerd.image.name"]] = true
		if d.Digest.String() != i.Digest || files["blobs/sha256/"+d.Digest.Hex] == nil {
			t.Errorf("the index names %s", d.Digest)
		}
	}
	if !names[i.Name()] || !names[Repository+":v1.2-dirty"] || len(names) != 2 {
		t.Errorf("names %v", names)
	}
	layer := tar.NewReader(bytes.NewReader(files["blobs/sha256/"+config.RootFS.DiffIDs[0].Hex]))
	for _, want := range []file{{"sandbar-agent", p.Agent}, {"sandbar-porter", p.Porter}} {
		h, err := layer.Next()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(layer)
		if h.Name != want.name || h.Mode != 0o755 || h.Uid != 0 || h.ModTime.Unix() != 0 || !bytes.Equal(content, want.content) || err != nil {
			t.Errorf("%+v, %d bytes, %v", h, len(content), err)
		}
	}
	if _, err := layer.Next(); err != io.EOF {
		t.Errorf("a third file: %v", err)
	}
}

func TestTag(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "v1.2.3", "": "latest", "-x": "x", "v1+a/b": "v1-a-b", "…": "latest", strings.Repeat("a", 200): strings.Repeat("a", 128)} {
		if got := Tag(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}

// What cannot be written is an error.
func TestArchiveWriter(t *testing.T) {
	i, err := Build(Programs{Agent: program(amd64, ""), Porter: program(amd64, "")})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.WriteArchive(full{}, "v1"); err == nil {
		t.Error("no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
