package image

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file returns content with bytes at some offsets.
func file(size int, at map[int]string) []byte {
	b := make([]byte, size)
	for offset, text := range at {
		copy(b[offset:], text)
	}
	return b
}

var (
	sector = map[int]string{510: "\x55\xaa"}
	kernel = file(4096, map[int]string{510: "\x55\xaa", 0x202: "HdrS"})
)

func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read checks and reads an image at a path.
func read(path string) (Type, *Image, error) {
	kind, err := Check(path)
	if err != nil {
		return "", nil, err
	}
	f, err := Open(path)
	if err != nil {
		return kind, nil, err
	}
	defer f.Close()
	img, err := f.Read()
	return kind, img, err
}

// The content determines the type, whatever the name is.
func TestTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		want Type // "" for none
	}{
		"an ISO image":                     {file(40000, map[int]string{32769: "CD001"}), ISO},
		"one with a boot sector":           {file(40000, map[int]string{32769: "CD001", 510: "\x55\xaa"}), ISO},
		"a disk":                           {file(1<<20, sector), Disk},
		"a disk of one sector":             {file(512, sector), Disk},
		"a kernel":                         {kernel, Kernel},
		"a state":                          {file(100, map[int]string{0: "\x76\x86\x76\x86"}), State},
		"a state that is compressed":       {file(100, map[int]string{0: "\x28\xb5\x2f\xfd"}), State},
		"a tar file of kernel and initrd":  {archive(t, map[string][]byte{"a/vmlinuz-6": kernel, "initrd.img": []byte("x")}), Bundle},
		"nothing":                          {nil, ""},
		"text":                             {[]byte("hello\n"), ""},
		"zeros":                            {make([]byte, 1<<20), ""},
		"a disk whose boot sector is none": {file(1<<20, map[int]string{510: "\xaa\x55"}), ""},
	} {
		path := filepath.Join(t.TempDir(), "file.iso")
		if err := os.WriteFile(path, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		kind, img, err := read(path)
		switch {
		case tc.want == "" && err == nil:
			t.Errorf("%s is a %s", name, kind)
		case tc.want == "" && !strings.Contains(err.Error(), "it is of none of the known types"):
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err != nil || kind != tc.want || img.Type != tc.want):
			t.Errorf("%s is a %s, want %s (%v)", name, kind, tc.want, err)
		}
	}
}

func TestBundles(t *testing.T) {
	line := []byte(" console=ttyS0 one two\n")
	for name, tc := range map[string]struct {
		files map[string][]byte
		line  string // "" for an error
	}{
		"all":               {map[string][]byte{"vmlinuz": kernel, "initrd": []byte("files"), "cmdline": line}, "console=ttyS0 one two"},
		"no words":          {map[string][]byte{"bzImage": kernel, "initramfs.cpio.gz": []byte("files")}, DefaultCommandLine},
		"others beside":     {map[string][]byte{"vmlinuz": kernel, "initrd": []byte("files"), "README": []byte("x")}, DefaultCommandLine},
		"no kernel":         {map[string][]byte{"initrd": []byte("files")}, ""},
		"no files":          {map[string][]byte{"vmlinuz": kernel}, ""},
		"empty files":       {map[string][]byte{"vmlinuz": kernel, "initrd": nil}, ""},
		"a kernel of text":  {map[string][]byte{"vmlinuz": []byte("text"), "initrd": []byte("files")}, ""},
		"two lines":         {map[string][]byte{"vmlinuz": kernel, "initrd": []byte("files"), "cmdline": []byte("a\nb")}, ""},
		"a line too long":   {map[string][]byte{"vmlinuz": kernel, "initrd": []byte("files"), "cmdline": bytes.Repeat([]byte("a"), 3000)}, ""},
		"a NUL in the line": {map[string][]byte{"vmlinuz": kernel, "initrd": []byte("files"), "cmdline": []byte("a\x00b")}, ""},
	} {
		dir := t.TempDir()
		for file, data := range tc.files {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tarred := filepath.Join(t.TempDir(), "bundle")
		if err := os.WriteFile(tarred, archive(t, tc.files), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, tarred} {
			_, img, err := read(path)
			switch {
			case tc.line == "" && err == nil:
				t.Errorf("%s: no error for %s", name, path)
			case tc.line != "" && err != nil:
				t.Errorf("%s: %v", name, err)
			case tc.line != "" && (img.CommandLine != tc.line || !bytes.Equal(img.Data, kernel) || string(img.Initrd) != "files"):
				t.Errorf("%s: command line %q, %d and %d bytes", name, img.CommandLine, len(img.Data), len(img.Initrd))
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, file(512, sector), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "no such file",
		t.TempDir():                        "a directory without a kernel",
		os.DevNull:                         "neither a file nor a directory",
		large:                              "more than the limit of 536870912",
	} {
		if _, err := Check(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// Every content has a known type or is refused.
func FuzzClassify(f *testing.F) {
	f.Add(kernel)
	f.Add(file(40000, map[int]string{32769: "CD001"}))
	f.Add(file(1024, map[int]string{257: "ustar"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, err := classify(b[:min(len(b), headSize)])
		if (kind == "") != (err != nil) {
			t.Errorf("%q, %v", kind, err)
		}
		if kind == Bundle {
			if img, err := untar(b); err == nil && (len(img.Data) == 0 || len(img.Initrd) == 0) {
				t.Error("a bundle with nothing in it")
			}
		}
	})
}
