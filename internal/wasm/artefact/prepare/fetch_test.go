package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

// published returns the directory of a build's files. Those in fetched are used as published, so
// the tests' registries can serve them.
func published(t *testing.T) string {
	t.Helper()
	testenv.Need(t, testenv.WasmModules, testenv.V86)
	return testenv.V86Modules()
}

var fetched = []string{"libv86.js", "bios.bin", "vgabios.bin"}

func contents(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// partly returns a directory without the files in fetched.
func partly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"python.wasm", "quickjs.wasm", "v86.wasm"} {
		if err := os.WriteFile(filepath.Join(dir, file), contents(t, filepath.Join(published(t), file)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		w.Write(content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compressed(t *testing.T, w io.WriteCloser, to *bytes.Buffer, content []byte) []byte {
	t.Helper()
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

// registries serves an npm registry, which requires a token, below /npm and a mirror of Debian
// below /debian.
func registries(t *testing.T) *httptest.Server {
	t.Helper()
	dir := published(t)
	var z, x bytes.Buffer
	emulator := compressed(t, gzip.NewWriter(&z), &z, archive(t, map[string][]byte{
		"package/LICENSE": []byte("licence of v86"), "package/build/libv86.js": contents(t, filepath.Join(dir, "libv86.js"))}))
	w, err := xz.NewWriter(&x)
	if err != nil {
		t.Fatal(err)
	}
	data := compressed(t, w, &x, archive(t, map[string][]byte{
		"./usr/share/doc/seabios/copyright":         []byte("licence of SeaBIOS"),
		"./usr/share/seabios/bios.bin":              contents(t, filepath.Join(dir, "bios.bin")),
		"./usr/share/seabios/vgabios-stdvga.bin":    contents(t, filepath.Join(dir, "vgabios.bin")),
		"./usr/share/seabios/vgabios-bochs-display": nil}))
	member := func(name string, b []byte) string {
		return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(b), b) + strings.Repeat("\n", len(b)%2)
	}
	deb := "!<arch>\n" + member("debian-binary", []byte("2.0\n")) + member("control.tar.xz", []byte("x")) + member("data.tar.xz", data)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /npm/v86/-/v86-0.5.462.tgz", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		w.Write(emulator)
	})
	mux.HandleFunc("GET /debian/pool/main/s/seabios/seabios_1.16.2-1_all.deb", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, deb) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// fetchStep runs scripts/wasm.sh for a directory. PATH has Go and the host's shell utilities, but
// no client program of a registry.
func fetchStep(t *testing.T, to string, environ ...string) (said string, err error) {
	t.Helper()
	testenv.Need(t, testenv.GoTool)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"go", "sh", "env", "dirname", "mkdir", "cmp", "mv", "rm", "cat"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(strings.ToLower(e), "npm_config_") && !strings.HasPrefix(e, "PATH=") {
			env = append(env, e)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sh"), filepath.Join(root, "scripts", "wasm.sh"), to)
	cmd.Env = append(append(env, "PATH="+bin, "TESTENV_CACHE="+t.TempDir()), environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The build downloads missing files with Go alone, from the registries in npm's configuration.
func TestFetch(t *testing.T) {
	server, dir := registries(t), partly(t)
	settings := filepath.Join(t.TempDir(), "npmrc")
	place := strings.TrimPrefix(server.URL, "http:")
	if err := os.WriteFile(settings, []byte("; a comment\nregistry = \"${TEST_REGISTRY}/npm\"\n"+place+"/npm/:_authToken=t0ken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := fetchStep(t, dir, "npm_config_userconfig="+settings, "TEST_REGISTRY="+server.URL, "DEBIAN_MIRROR="+server.URL+"/debian/")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, file := range fetched {
		if !bytes.Equal(contents(t, filepath.Join(dir, file)), contents(t, filepath.Join(published(t), file))) {
			t.Errorf("%s is another file", file)
		}
	}
	for file, want := range map[string]string{"libv86.js.LICENSE": "licence of v86", "bios.bin.LICENSE": "licence of SeaBIOS", "vgabios.bin.LICENSE": "licence of SeaBIOS"} {
		if got := string(contents(t, filepath.Join(dir, file))); got != want {
			t.Errorf("%s: %q", file, got)
		}
	}
	if _, err := artefact.ReadEmulator(dir); err != nil {
		t.Errorf("the emulator: %v", err)
	}
	// A second run downloads nothing.
	server.Close()
	if said, err := fetchStep(t, dir, "npm_config_registry="+server.URL, "DEBIAN_MIRROR="+server.URL); err != nil {
		t.Errorf("all is there, and the step failed: %v: %s", err, said)
	}
}

// A build that cannot get the files fails with an error that names a fix.
func TestFetchFails(t *testing.T) {
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // their defaults are below HOME
		if dir, err := exec.Command("go", "env", name).Output(); err == nil {
			t.Setenv(name, strings.TrimSpace(string(dir)))
		}
	}
	t.Setenv("HOME", t.TempDir()) // no .npmrc
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var z bytes.Buffer
		w.Write(compressed(t, gzip.NewWriter(&z), &z, archive(t, map[string][]byte{"package/build/libv86.js": []byte("other()")})))
	}))
	defer wrong.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct{ registry, says string }{
		"no registry":   {closed.URL, "connection refused"},
		"none is set":   {"", "no npm registry is configured"},
		"another file":  {wrong.URL, "libv86.js has the SHA-256 sum"},
		"not a package": {registries(t).URL + "/debian", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := partly(t)
			for _, file := range []string{"bios.bin", "vgabios.bin"} { // Debian's own servers are not asked
				if err := os.WriteFile(filepath.Join(dir, file), contents(t, filepath.Join(published(t), file)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			said, err := fetchStep(t, dir, "npm_config_registry="+c.registry)
			if err == nil {
				t.Error("the step succeeded")
			}
			for _, want := range []string{"v86@0.5.462", c.says, "npm_config_registry", "WASM=0"} {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in %s", want, said)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*libv86*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
