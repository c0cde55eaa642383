package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandbar-dev/sandbar"
)

// ImportOptions are the parameters of an import.
type ImportOptions struct {
	// Name is the reference of the imported image.
	Name string
	// Pick selects one image of an archive with several: a tag in the archive, or the digest of a
	// manifest.
	Pick string
	// Arch is the processor architecture, a GOARCH. Default: the host's.
	Arch string
}

// Import reads an image from an archive, gzip, zstd or uncompressed: the output of `docker save`,
// an OCI layout, or the files of a root file system. It does not read from r after it returns.
//
// Errors are those of Pull.
func (s *Store) Import(ctx context.Context, r io.Reader, o ImportOptions) (Image, error) {
	return s.importing(ctx, o, operation{job: job{Kind: jobArchive}, input: copier(r)})
}

// ImportDir reads an image from a directory: an OCI layout, or the files of a root file system. It
// only reads the directory, and follows no link out of it.
//
// Errors are those of Pull.
func (s *Store) ImportDir(ctx context.Context, dir string, o ImportOptions) (Image, error) {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return Image{}, failed("importing an image", err)
	}
	defer top.Close()
	if isLayout(top) {
		return s.importing(ctx, o, operation{job: job{Kind: jobLayout}, files: opening(top)})
	}
	return s.importing(ctx, o, operation{job: job{Kind: jobArchive}, input: func(ctx context.Context, w io.Writer) error {
		return writeFiles(ctx, top, w)
	}})
}

func (s *Store) importing(ctx context.Context, o ImportOptions, op operation) (Image, error) {
	ref, err := ParseReference(o.Name)
	if err != nil {
		return Image{}, err
	}
	if ref.Digest() != "" {
		return Image{}, sandbar.Errorf(sandbar.Invalid, "an image is imported under a name with a tag, not with a digest")
	}
	op.job.Arch, op.job.Pick = cmp.Or(o.Arch, runtime.GOARCH), o.Pick
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	b, err := s.newBuild()
	if err != nil {
		return Image{}, err
	}
	defer b.close()
	r, err := b.run(ctx, op)
	if err != nil {
		return Image{}, failed("importing an image", err)
	}
	i, err := b.publish(ctx, r, op.job.Arch, namedBinding{ref.Text, binding{ID: r.ID}})
	return i, failed("importing an image", err)
}

// copier returns a function that copies r to its argument, and returns errors of r only.
func copier(r io.Reader) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		from := &source{r: r}
		_, _ = io.Copy(w, from)
		return from.err
	}
}

// archive reads an archive. Its kind is known after it has been unpacked.
func (b *stage) archive(ctx context.Context, r io.Reader, o ImportOptions) (id string, err error) {
	plain, err := decompress(countedReader{r, &b.budget.travel, b.budget.tooLarge})
	if err != nil {
		return "", err
	}
	defer plain.Close()
	sum := sha256.New()
	l, err := b.unpack(ctx, io.TeeReader(plain, sum))
	if err != nil {
		return "", err
	}
	top, err := b.top.OpenRoot(layerName)
	if err != nil {
		return "", err
	}
	defer top.Close()
	if !isLayout(top) && !isSaved(top) {
		b.image.Dropped = l.dropped
		if err := merge(b.top, layerName, rootName, l); err != nil {
			return "", err
		}
		return b.plain(hex.EncodeToString(sum.Sum(nil)), o.Arch)
	}
	if err := b.top.Rename(layerName, "archive"); err != nil {
		return "", err
	}
	b.budget = newBudget(b.limits) // the archive's own files do not count towards the image
	if isLayout(top) {
		id, err = b.layout(ctx, opening(top), o)
	} else {
		id, err = b.saved(ctx, opening(top), o)
	}
	if err != nil {
		return "", err
	}
	return id, b.top.RemoveAll("archive")
}

// plain creates the configuration of an image without one, and returns its ID.
func (b *stage) plain(diffID, arch string) (id string, err error) {
	if b.budget.entries == b.budget.limits.Entries {
		return "", malformed("it has no files")
	}
	var c struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		RootFS       struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	c.Architecture, c.OS, c.RootFS.Type, c.RootFS.DiffIDs = arch, "linux", "layers", []string{idPrefix + diffID}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	b.image.Arch = arch
	return digestOf(raw), nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return idPrefix + hex.EncodeToString(sum[:])
}

func isLayout(top *os.Root) bool { return isFile(top, "oci-layout") && isFile(top, "index.json") }

func isSaved(top *os.Root) bool { return isFile(top, "manifest.json") }

func isFile(top *os.Root, name string) bool {
	info, err := top.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// open opens a file of an archive. Old archives have links between layers, which may lead anywhere
// inside the archive.
func open(top *os.Root, name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, malformed("the archive names the file " + printable(name))
	}
	info, err := top.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, malformed("the archive has no file " + printable(name))
	}
	return top.Open(name)
}

// opener opens a file of a layout or archive.
type opener func(name string) (*os.File, error)

func opening(top *os.Root) opener {
	return func(name string) (*os.File, error) { return open(top, name) }
}

// document reads a small file of an archive.
func document(open opener, name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = malformed(printable(name) + " has more than " + size(maxDocument))
	}
	return b, err
}

// saved reads the output of `docker save`.
func (b *stage) saved(ctx context.Context, open opener, o ImportOptions) (id string, err error) {
	raw, err := document(open, "manifest.json")
	if err != nil {
		return "", err
	}
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(raw, &images); err != nil {
		return "", malformed("its manifest.json is no JSON of the right form")
	}
	var tags []string
	chosen := -1
	for i, image := range images {
		tags = append(tags, image.RepoTags...)
		if o.Pick == "" && len(images) == 1 || o.Pick != "" && slices.Contains(image.RepoTags, o.Pick) {
			chosen = i
		}
	}
	if chosen < 0 {
		return "", ambiguousImage(o.Pick, tags)
	}
	image := images[chosen]
	if raw, err = document(open, image.Config); err != nil {
		return "", err
	}
	c, err := parseConfig(raw, o.Arch, len(image.Layers))
	if err != nil {
		return "", err
	}
	b.image = c.image()
	for i, name := range image.Layers {
		if err := b.blob(ctx, open, name, "", c.RootFS.DiffIDs[i]); err != nil {
			return "", err
		}
	}
	return digestOf(raw), nil
}

// ambiguousImage returns the error for an ambiguous or unknown Pick.
func ambiguousImage(pick string, has []string) error {
	for i := range has {
		has[i] = sandbar.Quote(has[i], 80)
	}
	list := "it has " + cmp.Or(strings.Join(has[:min(len(has), 20)], ", "), "none that has a name")
	if pick == "" {
		return &sandbar.Error{Code: sandbar.Invalid, Field: "pick", Message: "the archive has not exactly one image: " + list, Fix: "say which with --pick"}
	}
	return &sandbar.Error{Code: sandbar.NotFound, Field: "pick", Message: "the archive has no image " + sandbar.Quote(pick, 80) + ": " + list}
}

// blob unpacks a layer that is a file of an archive. digest, if not "", is the digest of that file.
func (b *stage) blob(ctx context.Context, open opener, name, digest, diffID string) error {
	f, err := open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if digest == "" {
		return addCompressed(ctx, b, f, diffID)
	}
	sum := sha256.New()
	if err := addCompressed(ctx, b, io.TeeReader(f, sum), diffID); err != nil {
		return err
	}
	return checkDigest(sum, digest)
}

// layout reads an OCI layout.
func (b *stage) layout(ctx context.Context, open opener, o ImportOptions) (id string, err error) {
	raw, err := document(open, "index.json")
	if err != nil {
		return "", err
	}
	desc, err := choose(open, raw, o, 0)
	if err != nil {
		return "", err
	}
	if raw, err = verified(open, desc); err != nil {
		return "", err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return "", malformed("its manifest is no JSON of the right form")
	}
	if raw, err = verified(open, &m.Config); err != nil {
		return "", err
	}
	c, err := parseConfig(raw, o.Arch, len(m.Layers))
	if err != nil {
		return "", err
	}
	b.image = c.image()
	for i := range m.Layers {
		name, err := blobName(&m.Layers[i])
		if err != nil {
			return "", err
		}
		if err := b.blob(ctx, open, name, m.Layers[i].Digest.String(), c.RootFS.DiffIDs[i]); err != nil {
			return "", err
		}
	}
	return m.Config.Digest.String(), nil
}

// refName is the annotation with an image's name in a layout.
const refName = "org.opencontainers.image.ref.name"

// choose finds the manifest of an index, or of a nested index, that is for this architecture and,
// if requested, has this name.
func choose(open opener, raw []byte, o ImportOptions, depth int) (*v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil || depth > maxIndexDepth {
		return nil, malformed("its index is no JSON of the right form")
	}
	var found []*v1.Descriptor
	var names []string
	for i := range index.Manifests {
		d := &index.Manifests[i]
		if depth == 0 && o.Pick != "" && d.Annotations[refName] != o.Pick && d.Digest.String() != o.Pick {
			names = append(names, cmp.Or(d.Annotations[refName], d.Digest.String()))
			continue
		}
		if d.Platform != nil && (d.Platform.OS != "linux" || d.Platform.Architecture != o.Arch) {
			continue
		}
		if d.MediaType.IsImage() || d.MediaType.IsIndex() {
			found = append(found, d)
			names = append(names, cmp.Or(d.Annotations[refName], d.Digest.String()))
		}
	}
	switch {
	case len(found) == 0 && (depth > 0 || o.Pick == ""):
		return nil, missingPlatform(index, o.Arch)
	case len(found) != 1:
		return nil, ambiguousImage(o.Pick, names)
	}
	if found[0].MediaType.IsImage() {
		return found[0], nil
	}
	if raw, err = verified(open, found[0]); err != nil {
		return nil, err
	}
	return choose(open, raw, o, depth+1)
}

func blobName(d *v1.Descriptor) (string, error) {
	if idDir(d.Digest.String()) == "" {
		return "", malformed("its digest is not of SHA-256")
	}
	return path.Join("blobs", "sha256", d.Digest.Hex), nil
}

// verified reads a small blob of a layout and verifies its digest.
func verified(open opener, d *v1.Descriptor) ([]byte, error) {
	name, err := blobName(d)
	if err != nil {
		return nil, err
	}
	b, err := document(open, name)
	if err != nil {
		return nil, err
	}
	if digestOf(b) != d.Digest.String() {
		return nil, malformed(printable(name) + " does not match its digest")
	}
	return b, nil
}

// writeFiles writes a directory as an archive in a fixed order. Every import is one of an archive,
// whose digest identifies the image.
func writeFiles(ctx context.Context, top *os.Root, w io.Writer) error {
	t := tar.NewWriter(w)
	err := fs.WalkDir(top.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		return writeEntry(top, t, p, e)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

func writeEntry(top *os.Root, t *tar.Writer, p string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = top.Readlink(p); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	// The owner is ignored, so it must not influence the digest.
	*h = tar.Header{Typeflag: h.Typeflag, Name: p, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, ModTime: h.ModTime, Format: tar.FormatPAX}
	if info.IsDir() {
		h.Name, h.ModTime = p+"/", modified(h.ModTime)
	}
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := top.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t, f)
	return err
}
