package guest

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// smallKernel returns an ELF file with an optional PVH note, as small as one can be.
func smallKernel(pvh bool) []byte {
	var note bytes.Buffer
	if pvh {
		binary.Write(&note, binary.LittleEndian, []uint32{4, 4, notePVHEntry})
		note.WriteString("Xen\x00\x00\x00\x00\x01")
	}
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	p := elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(note.Len()), Memsz: uint64(note.Len())}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, h)
	binary.Write(&b, binary.LittleEndian, p)
	b.Write(note.Bytes())
	b.WriteString("Linux version %s (x)\x00Linux version 6.12.1-test (gcc)\x00")
	return b.Bytes()
}

// bzImage returns a bzImage with a payload.
func bzImage(payload []byte) []byte {
	b := make([]byte, 1024)
	b[headerSectors] = 1
	copy(b[headerMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[headerVersion:], 0x20f)
	binary.LittleEndian.PutUint32(b[headerPayload:], 16)
	binary.LittleEndian.PutUint32(b[headerLength:], uint32(len(payload)))
	b = append(b, make([]byte, 16)...)
	return append(append(b, payload...), "the rest"...)
}

func TestExtract(t *testing.T) {
	kernel := smallKernel(true)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(kernel)))
	var g bytes.Buffer
	w := gzip.NewWriter(&g)
	w.Write(kernel)
	w.Close()
	packed := z.EncodeAll(kernel, nil)
	for name, image := range map[string][]byte{
		"vmlinux": kernel,
		"zstd":    bzImage(append(slices.Clone(packed), size...)),
		"gzip":    bzImage(append(g.Bytes(), size...)),
		"plain":   bzImage(kernel),
	} {
		if got, err := extract(image); err != nil || !bytes.Equal(got, kernel) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	whole := bzImage(append(slices.Clone(packed), size...))
	for name, image := range map[string][]byte{
		"empty":             nil,
		"text":              []byte(strings.Repeat("not a kernel", 1000)),
		"truncated":         whole[:len(whole)-20],
		"damaged":           bzImage(append([]byte{0x28, 0xb5, 0x2f, 0xfd}, make([]byte, 100)...)),
		"unknown":           bzImage([]byte("BZh91AY&SY")),
		"without PVH":       smallKernel(false),
		"half an ELF file":  kernel[:100],
		"note out of range": append(slices.Clone(kernel[:120]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
	} {
		if _, err := extract(image); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := release(kernel); got != "6.12.1-test" {
		t.Errorf("release: %q", got)
	}
}

// TestSetupTakesTheOperatorsKernel checks Setup with a file, and that OpenKernel sees damage.
func TestSetupTakesTheOperatorsKernel(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "vmlinux")
	if err := os.WriteFile(file, smallKernel(true), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKernel(dir); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("no kernel: %v", err)
	}
	k, err := Setup(t.Context(), SetupOptions{Dir: dir, Vmlinux: file})
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != "6.12.1-test" || k.Source != file || len(k.Modules) != 0 || len(k.Digest) != 64 {
		t.Errorf("%+v", k)
	}
	if again, err := Setup(t.Context(), SetupOptions{Dir: dir}); err != nil || again.Digest != k.Digest {
		t.Errorf("the prepared kernel: %+v, %v", again, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) != 2 || len(hidden) != 0 { // the kernel and the lock
		t.Errorf("left: %q %q", left, hidden)
	}
	if err := os.WriteFile(file, smallKernel(false), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Setup(t.Context(), SetupOptions{Dir: dir, Vmlinux: file}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a kernel without PVH: %v", err)
	}
	if again, err := OpenKernel(dir); err != nil || again.Digest != k.Digest {
		t.Errorf("after a failure the previous kernel is gone: %v", err)
	}
	if err := os.WriteFile(k.Vmlinux, smallKernel(false), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKernel(dir); sandbar.CodeOf(err) != sandbar.Internal {
		t.Errorf("a damaged kernel: %v", err)
	}
}

// TestModulesOfTheRealKernel checks the order of the modules of the kernel of scripts/tools.sh.
func TestModulesOfTheRealKernel(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.VMKernel)
	k, err := OpenKernel(testenv.VMCache())
	if err != nil {
		t.Fatal(err)
	}
	loaded := map[string]bool{}
	for _, path := range k.Modules {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		needs, err := dependencies(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needs {
			if !loaded[n] {
				t.Errorf("%s is loaded before %s, which it needs", path, n)
			}
		}
		loaded[moduleName(path)] = true
	}
	if !loaded["erofs"] {
		t.Errorf("erofs is not among %q", k.Modules)
	}
}

func TestSelectModulesRefuses(t *testing.T) {
	files := map[string][]byte{"lib/modules/1/modules.builtin": []byte("kernel/drivers/virtio/virtio_pci.ko\nkernel/x/virtio-console.ko\n")}
	_, err := selectModules(treeOf(files))
	if err == nil || !strings.Contains(err.Error(), "no virtio_blk, erofs, overlay,") {
		t.Errorf("missing modules: %v", err)
	}
	files["lib/modules/1/kernel/virtio_blk.ko.xz"] = []byte("garbage")
	if _, err := selectModules(treeOf(files)); err == nil || !strings.Contains(err.Error(), "virtio_blk") {
		t.Errorf("a damaged module: %v", err)
	}
}

// TestDownload checks that only the bytes of apt's index are accepted.
func TestDownload(t *testing.T) {
	content := strings.Repeat("package", 500_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			w.Write([]byte(content))
		case "/long":
			w.Write([]byte(content + "x"))
		case "/short":
			w.Write([]byte(content[1:]))
		case "/other":
			w.Write([]byte(strings.ToUpper(content)))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	at := location{size: int64(len(content)), sha256: digest([]byte(content))}
	for path, ok := range map[string]bool{"/good": true, "/long": false, "/short": false, "/other": false, "/none": false} {
		b, err := download(t.Context(), server.Client(), server.URL+path, at, func(int64) {})
		if (err == nil) != ok || ok && string(b) != content {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	if _, err := download(t.Context(), server.Client(), "file:///etc/passwd", at, func(int64) {}); err == nil {
		t.Error("a file was accepted")
	}
}

func TestLocation(t *testing.T) {
	const line = "'http://mirror.example/debian/pool/main/l/x%2by.deb' x_1_amd64.deb 1512 SHA256:ab2bd6d92fedce96f7fb3f51a0dfefadf069a32023927150d7ddaeb3aed1464c\n"
	m := printedURI.FindStringSubmatch(line)
	if m == nil || m[1] != "http://mirror.example/debian/pool/main/l/x%2by.deb" || m[2] != "1512" {
		t.Fatalf("%q", m)
	}
	if m := printedURI.FindStringSubmatch("'http://mirror.example/x.deb' x.deb 1 MD5Sum:0\n"); m != nil {
		t.Errorf("a line without SHA-256: %q", m)
	}
	t.Setenv("DEBIAN_MIRROR", "http://other.example/debian/")
	want := []string{"http://other.example/debian/pool/main/l/x.deb", "http://mirror.example/debian/pool/main/l/x.deb"}
	if got := (location{uri: want[1]}).candidates(); !slices.Equal(got, want) {
		t.Errorf("candidates: %q", got)
	}
}

// TestInitramfs checks that the initial file system is kept, compared, and removed when unused.
func TestInitramfs(t *testing.T) {
	dir := t.TempDir()
	path, sum, err := BuildInitramfs(dir, Kernel{}, []byte("agent"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, sum2, err := BuildInitramfs(dir, Kernel{}, []byte("agent"))
	if err != nil || again != path || sum2 != sum {
		t.Errorf("again: %s %s, %v", again, sum2, err)
	}
	if got, err := fileDigest(path); err != nil || got != sum {
		t.Errorf("a damaged file was kept: %s, %v", got, err)
	}
	other, _, err := BuildInitramfs(dir, Kernel{}, []byte("another agent"))
	if err != nil || other == path {
		t.Errorf("another agent: %s, %v", other, err)
	}
	old := time.Now().Add(-2 * unusedFor)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if _, _, err := BuildInitramfs(dir, Kernel{}, []byte("another agent")); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, initramfsDir, initramfsPrefix+"*"))
	if !slices.Equal(left, []string{other}) {
		t.Errorf("left: %q, want %q", left, other)
	}
}

func TestCmdline(t *testing.T) {
	line := Cmdline(Boot{Disk: 1 << 20, Inodes: 7})
	for _, word := range []string{"panic=-1", "sandbar.disk=1048576", "sandbar.inodes=7"} {
		if !slices.Contains(strings.Fields(line), word) {
			t.Errorf("%q lacks %s", line, word)
		}
	}
	if strings.Contains(Cmdline(Boot{}), "sandbar.") {
		t.Errorf("bounds that were not asked for: %q", Cmdline(Boot{}))
	}
}
