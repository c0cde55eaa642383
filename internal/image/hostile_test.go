package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sandbar-dev/sandbar"
)

// header is an archive entry for tests; content is a file's content.
type header struct {
	tar.Header
	content string
}

func file(name, content string) header {
	return header{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1e9, 0)}, content}
}

func dir(name string) header {
	return header{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func symlink(name, to string) header {
	return header{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, ""}
}

func hardLink(name, to string) header {
	return header{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}, ""}
}

func node(kind byte, name string) header {
	return header{tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}
}

// withMode changes the mode of an entry.
func (h header) withMode(mode int64) header {
	h.Mode = mode
	return h
}

// archive writes entries as tar.
func archive(t testing.TB, entries ...header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if err := w.WriteHeader(&h.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, h.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// newStore opens a new store. At the end of the test nothing unfinished may be in it.
func newStore(t testing.TB, limits Limits) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClean(t, s) })
	return s
}

// checkClean checks that the store has only finished images and its own files.
func checkClean(t testing.TB, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) || strings.HasPrefix(e.Name(), ".new-") {
			t.Errorf("%s is left in the store", e.Name())
		}
	}
}

// buildImage imports an image of uncompressed layers.
func buildImage(t testing.TB, s *Store, layers ...[]byte) (Image, error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(media string, b []byte) map[string]any {
		t.Helper()
		write("blobs/sha256/"+digestOf(b)[7:], b)
		return map[string]any{"mediaType": media, "digest": digestOf(b), "size": len(b)}
	}
	marshal := func(v any) []byte {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ids, descriptors := []string{}, []any{}
	for _, l := range layers {
		ids = append(ids, digestOf(l))
		descriptors = append(descriptors, blob("application/vnd.oci.image.layer.v1.tar", l))
	}
	config := marshal(map[string]any{"os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	manifest := marshal(map[string]any{"schemaVersion": 2, "config": blob("application/vnd.oci.image.config.v1+json", config), "layers": descriptors})
	write("index.json", marshal(map[string]any{"schemaVersion": 2, "manifests": []any{blob("application/vnd.oci.image.manifest.v1+json", manifest)}}))
	write("oci-layout", []byte("{}"))
	return s.ImportDir(t.Context(), dir, ImportOptions{Name: "test"})
}

// listing returns the tree of an image, one line per name: type, mode, path, and content or link
// target.
func listing(t testing.TB, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch {
		case e.IsDir():
			fmt.Fprintf(&out, "%v %s/\n", info.Mode(), rel)
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			fmt.Fprintf(&out, "link %s -> %s\n", rel, to)
			return err
		default:
			b, err := os.ReadFile(p)
			fmt.Fprintf(&out, "%v %s %q\n", info.Mode(), rel, b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLayers tests that layers are merged as by other tools.
func TestLayers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layers [][]header
		want   string
	}{
		{"modes", [][]header{{dir("d").withMode(0o500), file("d/setuid", "x").withMode(0o6755), file("d/closed", "").withMode(0), dir("t").withMode(0o1777)}},
			"drwx------ d/\n-rw------- d/closed \"\"\n-rwxr-xr-x d/setuid \"x\"\ndtrwxrwxrwx t/\n"},
		{"absolute names are names", [][]header{{file("/etc/passwd", "x"), file("./etc/./group", "y")}},
			"drwxr-xr-x etc/\n-rw-r--r-- etc/group \"y\"\n-rw-r--r-- etc/passwd \"x\"\n"},
		{"devices and pipes are dropped", [][]header{{dir("dev"), node(tar.TypeChar, "dev/null"), node(tar.TypeBlock, "dev/sda"), node(tar.TypeFifo, "pipe")}},
			"drwxr-xr-x dev/\n"},
		{"links are kept as they are", [][]header{{symlink("a", "/etc/shadow"), symlink("b", "../../../x"), symlink("c", "c")}},
			"link a -> /etc/shadow\nlink b -> ../../../x\nlink c -> c\n"},
		{"the last entry counts", [][]header{{file("a", "1"), file("a", "2"), dir("b"), file("b/x", ""), file("b", "file"), symlink("c", "/x"), dir("c"), file("c/y", "")}},
			"-rw-r--r-- a \"2\"\n-rw-r--r-- b \"file\"\ndrwxr-xr-x c/\n-rw-r--r-- c/y \"\"\n"},
		{"a hard link is not written through", [][]header{{file("a", "1"), hardLink("b", "a"), file("b", "2")}},
			"-rw-r--r-- a \"1\"\n-rw-r--r-- b \"2\"\n"},
		{"a file over a link does not follow it", [][]header{{file("a", "1"), symlink("b", "a"), file("b", "2")}},
			"-rw-r--r-- a \"1\"\n-rw-r--r-- b \"2\"\n"},
		{"a later layer wins", [][]header{{file("a", "1"), dir("d"), file("d/x", "1")}, {file("a", "2"), dir("d").withMode(0o700), file("d/y", "2")}},
			"-rw-r--r-- a \"2\"\ndrwx------ d/\n-rw-r--r-- d/x \"1\"\n-rw-r--r-- d/y \"2\"\n"},
		{"a directory nobody described keeps its mode", [][]header{{dir("d").withMode(0o700)}, {file("d/x", "")}},
			"drwx------ d/\n-rw-r--r-- d/x \"\"\n"},
		{"kinds are exchanged", [][]header{{dir("a"), file("a/x", ""), file("b", "")}, {file("a", "f"), dir("b"), file("b/y", "")}},
			"-rw-r--r-- a \"f\"\ndrwxr-xr-x b/\n-rw-r--r-- b/y \"\"\n"},
		{"a directory hides a lower link", [][]header{{dir("usr"), symlink("lib", "usr")}, {dir("lib"), file("lib/x", "")}},
			"drwxr-xr-x lib/\n-rw-r--r-- lib/x \"\"\ndrwxr-xr-x usr/\n"},
		{"whiteouts", [][]header{{file("a", ""), dir("d"), file("d/x", ""), file("d/y", ""), file("e/f/g", "")},
			{file(".wh.a", ""), file("d/.wh.x", ""), file("e/.wh.f", "")}},
			"drwxr-xr-x d/\n-rw-r--r-- d/y \"\"\ndrwxr-xr-x e/\n"},
		{"a whiteout does not touch its own layer", [][]header{{file("a", "1")}, {file("a", "2"), file(".wh.a", "")}}, "-rw-r--r-- a \"2\"\n"},
		{"opaque", [][]header{{dir("d"), file("d/x", ""), file("d/e/y", "")}, {file("d/z", ""), file("d/.wh..wh..opq", "")}},
			"drwxr-xr-x d/\n-rw-r--r-- d/z \"\"\n"},
		{"opaque at the top", [][]header{{file("a", "")}, {file(".wh..wh..opq", ""), file("b", "")}}, "-rw-r--r-- b \"\"\n"},
		{"whiteouts of nothing", [][]header{{file("a", ""), file(".wh.b", ""), file("x/.wh..wh..opq", ""), file("y/.wh.b", ""), file(".wh..wh.plnk", "")}}, "-rw-r--r-- a \"\"\n"},
		{"a whiteout below a lower link or file", [][]header{{symlink("l", "/etc"), file("f", "1")}, {file("l/.wh.passwd", ""), file("f/.wh.x", ""), file("l/.wh..wh..opq", "")}},
			"-rw-r--r-- f \"1\"\nlink l -> /etc\n"},
		{"hard links", [][]header{{file("a", "1"), file("d/b", "2")}, {hardLink("c", "a"), hardLink("x/y", "d/b"), hardLink("d/b2", "/d/b")}},
			"-rw-r--r-- a \"1\"\n-rw-r--r-- c \"1\"\ndrwxr-xr-x d/\n-rw-r--r-- d/b \"2\"\n-rw-r--r-- d/b2 \"2\"\ndrwxr-xr-x x/\n-rw-r--r-- x/y \"2\"\n"},
		{"a hard link to a link", [][]header{{symlink("a", "/etc/passwd"), hardLink("b", "a")}}, "link a -> /etc/passwd\nlink b -> /etc/passwd\n"},
		{"global headers", [][]header{{{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""}, file("a", "")}}, "-rw-r--r-- a \"\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, archive(t, l...))
			}
			s := newStore(t, Limits{})
			i, err := buildImage(t, s, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, i.Dir); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// TestTimes tests that modification times are kept: compilers compare them with those of sources.
func TestTimes(t *testing.T) {
	early := file("early", "")
	early.ModTime = time.Unix(-1e9, 0)
	early.Format = tar.FormatPAX
	i, err := buildImage(t, newStore(t, Limits{}), archive(t, file("a", ""), early))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"a": 1e9, "early": 0} {
		info, err := os.Stat(filepath.Join(i.Dir, name))
		if err != nil || info.ModTime().Unix() != want {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
}

// bait is a directory outside of the image that must stay unchanged.
func bait(t *testing.T) (path string, check func()) {
	t.Helper()
	path = t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("bait"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := listing(t, path)
	return path, func() {
		t.Helper()
		if now := listing(t, path); now != before {
			t.Errorf("outside, there was\n%sand now there is\n%s", before, now)
		}
	}
}

// TestHostileLayers tests that a hostile image is refused as a whole and changes nothing outside.
func TestHostileLayers(t *testing.T) {
	outside, untouched := bait(t)
	long := strings.Repeat("n", 256)
	deep := strings.Repeat("d/", maxDepth+1)
	for _, tt := range []struct {
		name   string
		layers [][]header
		code   sandbar.Code
	}{
		{"up", [][]header{{file("../x", "")}}, sandbar.Invalid},
		{"up within", [][]header{{file("a/../../x", "")}}, sandbar.Invalid},
		{"up that stays", [][]header{{file("a/b/../x", "")}}, sandbar.Invalid},
		{"absolute and up", [][]header{{file("/../x", "")}}, sandbar.Invalid},
		{"through a link of its own", [][]header{{symlink("a", outside), file("a/x", "")}}, sandbar.Invalid},
		{"through a link that stays", [][]header{{dir("b"), symlink("a", "b"), file("a/x", "")}}, sandbar.Invalid},
		{"a directory through a link", [][]header{{symlink("a", outside), dir("a/x")}}, sandbar.Invalid},
		{"through a file", [][]header{{file("a", ""), file("a/x", "")}}, sandbar.Invalid},
		{"a hard link up", [][]header{{hardLink("a", "../"+filepath.Base(outside)+"/file")}}, sandbar.Invalid},
		{"a hard link out", [][]header{{hardLink("a", filepath.Join(outside, "file"))}}, sandbar.Invalid},
		{"a hard link through a link", [][]header{{symlink("l", outside), hardLink("a", "l/file")}}, sandbar.Invalid},
		{"a hard link through a lower link", [][]header{{symlink("l", outside)}, {hardLink("a", "l/file")}}, sandbar.Invalid},
		{"a hard link to a directory", [][]header{{dir("d"), hardLink("a", "d")}}, sandbar.Invalid},
		{"a hard link to a lower directory", [][]header{{dir("d")}, {hardLink("a", "d")}}, sandbar.Invalid},
		{"a hard link to nothing", [][]header{{hardLink("a", "b")}}, sandbar.Invalid},
		{"a hard link to itself", [][]header{{file("a", ""), hardLink("a", "a")}}, sandbar.Invalid},
		{"a hard link to the top", [][]header{{hardLink("a", ".")}}, sandbar.Invalid},
		{"a hard link at a lower link", [][]header{{symlink("l", outside), file("a", "")}, {hardLink("l/file", "b"), dir("x")}}, sandbar.Invalid},
		{"the top as a file", [][]header{{file(".", "x")}}, sandbar.Invalid},
		{"the top as a link", [][]header{{symlink("./", outside)}}, sandbar.Invalid},
		{"a whiteout of nothing", [][]header{{file("d/.wh.", "")}}, sandbar.Invalid},
		{"a whiteout of the top", [][]header{{file(".wh..", "")}}, sandbar.Invalid},
		{"a whiteout of the parent", [][]header{{file("d/.wh...", "")}}, sandbar.Invalid},
		{"a long name", [][]header{{file(long, "")}}, sandbar.Invalid},
		{"a long path", [][]header{{file(strings.Repeat(strings.Repeat("p", 200)+"/", 21)+"x", "")}}, sandbar.Invalid},
		{"deep", [][]header{{file(deep+"x", "")}}, sandbar.Invalid},
		{"an unknown kind", [][]header{{{tar.Header{Typeflag: 'Z', Name: "a"}, ""}}}, sandbar.Invalid},
		{"too many entries", [][]header{{file("a", ""), file("b", ""), file("c", "")}, {file("d", ""), file("a", ""), file("a", ""), file("a", "")}}, sandbar.TooLarge},
		{"too much in one file", [][]header{{file("a", strings.Repeat("x", 1<<20+1))}}, sandbar.TooLarge},
		{"too much in all", [][]header{{file("a", strings.Repeat("x", 600<<10))}, {file("a", strings.Repeat("x", 600<<10))}}, sandbar.TooLarge},
		{"too many layers", [][]header{{}, {}, {}, {}, {}}, sandbar.TooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, archive(t, l...))
			}
			s := newStore(t, Limits{Bytes: 1 << 20, Entries: 6, Layers: 4})
			i, err := buildImage(t, s, layers...)
			if sandbar.CodeOf(err) != tt.code {
				t.Errorf("%v, %v; want %s", i, err, tt.code)
			}
			untouched()
		})
	}
}

// sparse returns an archive whose single file announces a size that it does not have.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes() // without data after it
}

// zeros returns a reader of n zeros.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestBombs tests small streams that decompress to large ones.
func TestBombs(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.Copy(z, zeros(64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	plain := archive(t, file("a", "x"))
	// A frame whose header requests a window, and one raw block.
	window := func(log byte) []byte {
		b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3}
		n := len(plain)<<3 | 1
		return append(append(b, byte(n), byte(n>>8), byte(n>>16)), plain...)
	}
	for _, tt := range []struct {
		name   string
		stream []byte
		code   sandbar.Code
	}{
		{"a claim of a terabyte", sparse(t, 1<<40), sandbar.TooLarge},
		{"a file cut short", sparse(t, 1000), sandbar.Invalid},
		{"zeros behind the archive", append(bytes.Clone(plain), make([]byte, 2<<20)...), sandbar.TooLarge},
		{"zeros, compressed", append(gzipped(t, plain), zipped.Bytes()...), sandbar.TooLarge},
		{"zeros alone", zipped.Bytes(), sandbar.TooLarge},
		{"a window of 1 MiB", window(20), ""},
		{"a window of 128 MiB", window(27), sandbar.Invalid},
		{"a window of 2 GiB", window(31), sandbar.Invalid},
		{"gzip cut short", gzipped(t, plain)[:30], sandbar.Invalid},
		{"gzip and no more", []byte{0x1f, 0x8b}, sandbar.Invalid},
		{"zstd and no more", []byte{0x28, 0xb5, 0x2f, 0xfd}, sandbar.Invalid},
		{"zstd damaged", append([]byte{0x28, 0xb5, 0x2f, 0xfd}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), sandbar.Invalid},
		{"nothing", nil, sandbar.Invalid},
		{"no archive", []byte(strings.Repeat("no archive ", 200)), sandbar.Invalid},
		{"gzip of no archive", gzipped(t, []byte(strings.Repeat("no archive ", 200))), sandbar.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t, Limits{Bytes: 1 << 20})
			i, err := s.Import(t.Context(), bytes.NewReader(tt.stream), ImportOptions{Name: "bomb"})
			if sandbar.CodeOf(err) != tt.code {
				t.Errorf("%v, %v (code %s); want %s", i, err, sandbar.CodeOf(err), tt.code)
			}
			if images, err := s.List(); err != nil || tt.code != "" && len(images) != 0 {
				t.Errorf("%v, %v are in the store", images, err)
			}
		})
	}
}

// TestCanceledImport tests that neither an archive that is malformed after a valid part nor a
// canceled import leaves anything.
func TestCanceledImport(t *testing.T) {
	s := newStore(t, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(archive(t, file("a", "x"))[:1024])
		cancel()
		_, _ = io.Copy(w, zeros(1<<20))
		w.Close()
	}()
	_, err := s.Import(ctx, r, ImportOptions{Name: "a"})
	r.Close()
	if sandbar.CodeOf(err) != sandbar.Canceled {
		t.Errorf("%v", err)
	}
}

func FuzzLayer(f *testing.F) {
	f.Add(archive(f, file("a", "x"), dir("d"), symlink("d/l", "/etc"), hardLink("b", "a"), file(".wh.a", "")))
	f.Add(archive(f, dir("d"), file("d/.wh..wh..opq", ""), file("d/x", "")))
	f.Add(gzipped(f, archive(f, file("../a", "x"))))
	f.Add(zstandard(f, archive(f, symlink("a", "b"), file("a/b", "x"))))
	f.Add(archive(f, file("manifest.json", `[{"Config":"c","Layers":["l"]}]`), file("c", `{"rootfs":{"diff_ids":["sha256:00"]}}`), file("l", "")))
	f.Add(archive(f, file("oci-layout", "{}"), file("index.json", `{"manifests":[{"digest":"sha256:00","mediaType":"application/vnd.oci.image.manifest.v1+json"}]}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		if err := os.WriteFile(filepath.Join(top, "outside"), []byte("bait"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(filepath.Join(top, "images"), Limits{Bytes: 1 << 20, Entries: 100})
		if err != nil {
			t.Fatal(err)
		}
		// Like Import, but in this process, so that the fuzzer sees the executed code, and without
		// publishing, to save disk space.
		x, err := s.newBuild()
		if err != nil {
			t.Fatal(err)
		}
		_, err = unpackHere(t.Context(), x, b)
		if c := sandbar.CodeOf(failed("fuzzing", err)); err != nil && c != sandbar.Invalid && c != sandbar.TooLarge && c != sandbar.Unsupported {
			t.Errorf("%v, code %s", err, c)
		}
		if err == nil {
			checkTree(t, filepath.Join(x.stage(), rootName))
		}
		x.close()
		checkClean(t, s)
		entries, err := os.ReadDir(top)
		if err != nil || len(entries) != 2 {
			t.Errorf("outside, there is now %v, %v", entries, err)
		}
		if b, err := os.ReadFile(filepath.Join(top, "outside")); err != nil || string(b) != "bait" {
			t.Errorf("outside is now %q, %v", b, err)
		}
	})
}

// unpackHere does an unpacker's job in this process.
func unpackHere(ctx context.Context, b *build, archive []byte) (*result, error) {
	top, err := os.OpenRoot(b.stage())
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return work(ctx, &job{Kind: jobArchive, Arch: "amd64", Limits: b.s.limits}, nil, top, bytes.NewReader(archive))
}

// checkTree checks the invariants of every tree in the store.
func checkTree(t testing.TB, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		m := info.Mode()
		switch {
		case m&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeIrregular) != 0:
			t.Errorf("%s is %v", p, m)
		case m.IsDir() && m.Perm()&dirBits != dirBits, m.IsRegular() && m.Perm()&fileBits != fileBits:
			t.Errorf("%s cannot be used by its owner: %v", p, m)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"debian", "ghcr.io/a/b:1", "localhost:5000/x@sha256:" + strings.Repeat("0", 64), "../../x", "file:///etc", "http://169.254.169.254/x", "[::1]:5000/x", "a//b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			if sandbar.CodeOf(err) != sandbar.Invalid {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		again, err := ParseReference(r.Text)
		if err != nil || again.Text != r.Text || again.Registry() != r.Registry() {
			t.Errorf("%q is %q, and that is %q, %v", s, r.Text, again.Text, err)
		}
		if strings.Contains(s, "..") && strings.Contains("/"+s+"/", "/../") || r.Registry() == "" {
			t.Errorf("%q is accepted", s)
		}
	})
}
