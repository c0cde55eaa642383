// Package agentimage builds the image that a pod of the driver kubernetes takes the agent and the
// porter from, and an image of the daemon, and writes them as archives for nodes.
//
// An image depends on nothing but its programs: it has one layer without compression, all times are
// 0, and its configuration has no name and no version. So every build of one version of Sandbar has
// the same digest, and the driver's default is a name with this digest.
package agentimage

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
)

// Repository and DaemonRepository are the names of the images on nodes that have loaded their
// archives. No registry has them: a node without the image asks itself and fails.
const (
	Repository       = "localhost/sandbar-agent"
	DaemonRepository = "localhost/sandbar"
)

// daemon is the name of the daemon's program in its image.
const daemon = "sandbar"

// User is the user and the group of the daemon's image.
const User = "65532:65532"

// Programs are the executables of the image.
type Programs struct {
	Agent, Porter []byte
}

// Image is a built image.
type Image struct {
	// V1 is the image, for package image.
	V1 v1.Image
	// Digest is the digest of the image's manifest, "sha256:…".
	Digest string
	// Arch is the processor architecture of its programs, a GOARCH.
	Arch string
	// Size is the size of its layer in bytes.
	Size int64

	repository string
}

// file is a program of an image.
type file struct {
	name    string
	content []byte
}

// Build builds the image. Unsupported: p has not both programs, or they are not for Linux on the
// same processor.
func Build(p Programs) (*Image, error) {
	if p.Agent == nil || p.Porter == nil {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "this build of sandbar does not contain the programs of the agent's image", Fix: "use a sandbar that `make build` has built, or name an image in the option agent_image of the driver kubernetes"}
	}
	arch, err := architecture(p.Agent)
	if err != nil {
		return nil, err
	}
	if other, err := architecture(p.Porter); err != nil || other != arch {
		return nil, errors.Join(err, sandbar.Errorf(sandbar.Unsupported, "the agent is for the processor %s, and the porter is not", arch))
	}
	return build(Repository, arch, v1.Config{Entrypoint: []string{"/" + porter.Name}}, file{agent.Name, p.Agent}, file{porter.Name, p.Porter})
}

// BuildDaemon builds an image of the daemon with nothing but its program, which runs "serve".
// Unsupported: the program is not for Linux.
func BuildDaemon(program []byte) (*Image, error) {
	arch, err := architecture(program)
	if err != nil {
		return nil, err
	}
	return build(DaemonRepository, arch, v1.Config{Entrypoint: []string{"/" + daemon}, Cmd: []string{"serve"}, User: User}, file{daemon, program})
}

// build builds an image.
func build(repository, arch string, settings v1.Config, files ...file) (*Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		if err := add(w, f.name, 0o755, f.content); err != nil {
			return nil, internal(err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, internal(err)
	}
	i, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return nil, internal(err)
	}
	config, err := i.ConfigFile()
	if err != nil {
		return nil, internal(err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Config = arch, "linux", settings
	if i, err = mutate.ConfigFile(i, config); err != nil {
		return nil, internal(err)
	}
	digest, err := i.Digest()
	if err != nil {
		return nil, internal(err)
	}
	return &Image{V1: i, Digest: digest.String(), Arch: arch, Size: int64(layer.Len()), repository: repository}, nil
}

// Name returns the image's name on nodes that have loaded its archive. It has the digest, so that
// no other image can have it.
func (i *Image) Name() string { return i.repository + "@" + i.Digest }

// Named reports whether a text has the name of an image of Name.
func Named(text string) bool { return strings.Contains(text, Repository+"@") }

// internal is the error of a step that cannot fail.
func internal(err error) error {
	return sandbar.Errorf(sandbar.Internal, "building an image: %w", err)
}

// architecture returns the GOARCH of an executable for Linux.
func architecture(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", &sandbar.Error{Code: sandbar.Unsupported, Err: err, Message: "the programs in this build of sandbar are not for Linux",
			Fix: "build the agent's image with a sandbar for Linux, on the nodes' processor"}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", sandbar.Errorf(sandbar.Unsupported, "there is no image of the agent for the processor %s", f.Machine)
}

// add adds a file without times and owner to an archive.
func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// Media types and annotations of an archive.
const (
	annotationName = "io.containerd.image.name"
	annotationTag  = "org.opencontainers.image.ref.name"
	layoutVersion  = `{"imageLayoutVersion":"1.0.0"}`
)

// WriteArchive writes the image as an archive that containerd ("ctr images import", "k3s ctr",
// "kind load image-archive") and Docker ("docker load") read: an OCI layout that is also in the
// format of "docker save". In it the image has the name of Name, and one with a tag.
func (i *Image) WriteArchive(to io.Writer, tag string) error {
	manifest, err := i.V1.RawManifest()
	if err != nil {
		return internal(err)
	}
	config, err := i.V1.RawConfigFile()
	if err != nil {
		return internal(err)
	}
	m, err := i.V1.Manifest()
	if err != nil {
		return internal(err)
	}
	layers, err := i.V1.Layers()
	if err != nil {
		return internal(err)
	}
	digest, err := i.V1.Digest()
	if err != nil {
		return internal(err)
	}
	tagged := i.repository + ":" + Tag(tag)
	descriptor := v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: digest, Platform: &v1.Platform{OS: "linux", Architecture: i.Arch}}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, names := range []map[string]string{{annotationName: i.Name()}, {annotationName: tagged, annotationTag: Tag(tag)}} {
		d := descriptor
		d.Annotations = names
		index.Manifests = append(index.Manifests, d)
	}
	listed, err := json.Marshal(index)
	if err != nil {
		return internal(err)
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	docker, err := json.Marshal([]any{map[string]any{"Config": blob(m.Config.Digest), "RepoTags": []string{tagged}, "Layers": []string{blob(m.Layers[0].Digest)}}})
	if err != nil {
		return internal(err)
	}
	layer, err := layers[0].Uncompressed()
	if err != nil {
		return internal(err)
	}
	defer layer.Close()
	content, err := io.ReadAll(layer)
	if err != nil {
		return internal(err)
	}
	w := tar.NewWriter(to)
	for _, f := range []file{
		{"oci-layout", []byte(layoutVersion)}, {"index.json", listed}, {"manifest.json", docker},
		{blob(digest), manifest}, {blob(m.Config.Digest), config}, {blob(m.Layers[0].Digest), content},
	} {
		if err := add(w, f.name, 0o644, f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// maxTag is the length of the longest tag, in bytes.
const maxTag = 128

// Tag returns a version as a tag of an image.
func Tag(version string) string {
	tag := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, version)
	if tag = strings.TrimLeft(tag, ".-"); tag == "" {
		return "latest"
	}
	return tag[:min(len(tag), maxTag)]
}
