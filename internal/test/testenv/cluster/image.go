package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// File is a file of an image.
type File struct {
	Path    string // absolute
	Mode    int64
	Content []byte
}

// WriteImage writes an archive for Load to path: an image called ref with one layer, which has the
// files. Its programs run as user, "" for root.
func WriteImage(path, ref, user string, entrypoint []string, files ...File) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path[1:], Mode: f.Mode, Size: int64(len(f.Content))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.Content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	content := layer.Bytes()
	return writeArchive(path, ref, imageConfig{User: user, Entrypoint: entrypoint}, int64(len(content)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
}

// WriteRootImage is WriteImage for the archive of a whole root file system, which must not be
// compressed. env are the image's variables.
func WriteRootImage(path, ref, root string, env ...string) error {
	st, err := os.Stat(root)
	if err != nil {
		return err
	}
	return writeArchive(path, ref, imageConfig{Env: env}, st.Size(), func() (io.ReadCloser, error) { return os.Open(root) })
}

// imageConfig is the configuration of an image.
type imageConfig struct {
	User            string
	Entrypoint, Env []string
}

// writeArchive writes an image with one layer in the format of "docker save".
func writeArchive(path, ref string, c imageConfig, size int64, layer func() (io.ReadCloser, error)) error {
	r, err := layer()
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, r)
	r.Close()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	add := func(name string, size int64, r io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(w, r)
		return err
	}
	if err := add("config.json", int64(len(config)), bytes.NewReader(config)); err != nil {
		return err
	}
	if err := add("manifest.json", int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	if r, err = layer(); err != nil {
		return err
	}
	defer r.Close()
	if err := add("layer.tar", size, r); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
