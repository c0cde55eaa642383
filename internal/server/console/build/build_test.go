package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// app is the directory of the console's sources.
func app(t *testing.T) string {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "internal", "server", "console", "app")
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func uncompressed(t *testing.T, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page names only its own assets, has no inline script or style, loads no terminal, editor or
// plots before they are needed, and has the licence of each package.
func TestBundle(t *testing.T) {
	testenv.Need(t, testenv.NpmConsole)
	p, err := bundle(app(t), testenv.NpmConsoleModules())
	if err != nil {
		t.Fatal(err)
	}
	html := string(p["index.html"])
	if strings.Contains(html, "{") {
		t.Errorf("the page has a placeholder: %s", html)
	}
	if inline := regexp.MustCompile(`<style|<script[^>]*>[^<]|\sstyle=|\son\w+=`).FindString(html); inline != "" {
		t.Errorf("the page has %q, which its policy forbids", inline)
	}
	var first strings.Builder
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		name, ok := strings.CutPrefix(m[1], assets)
		b := p["assets/"+name+".gz"]
		if !ok || b == nil {
			t.Fatalf("the page asks for %s", m[1])
		}
		text := uncompressed(t, b)
		if strings.HasSuffix(name, ".js") {
			first.WriteString(text)
		}
		if strings.HasPrefix(name, "licences") {
			for _, m := range modules() {
				if !strings.Contains(text, m.spec()+", "+m.licence+"\n") {
					t.Errorf("no licence of %s", m.spec())
				}
			}
		}
	}
	for library, mark := range map[string]string{"xterm": "xterm-helper-textarea", "CodeMirror": "cm-content", "uPlot": "u-legend"} {
		if strings.Contains(first.String(), mark) {
			t.Errorf("the page loads %s at once", library)
		}
	}
	t.Logf("%d KiB, compressed", p.compressed()>>10)
}

// small returns a directory with the sources of a small page.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "index.html"), "{SCRIPT} {STYLE} {ICON} {LICENCES}\n{PRELOAD}\n")
	write(t, filepath.Join(dir, "icon.svg"), "<svg/>")
	write(t, filepath.Join(dir, "style.css"), "body { margin: 0 }")
	write(t, filepath.Join(dir, "main.tsx"), "import './style.css'\nimport { render } from 'preact'\nrender(<p>first</p>, document.body)\n")
	return dir
}

// A build with unchanged inputs does nothing; a build with changed inputs replaces the page.
func TestIncremental(t *testing.T) {
	testenv.Need(t, testenv.NpmConsole)
	sources, output := small(t), filepath.Join(t.TempDir(), "dist")
	build := func() error { return run([]string{sources, filepath.Dir(testenv.NpmConsoleModules()), output}) }
	if err := build(); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(output, "index.html")
	before := read(t, page)
	write(t, page, "unchanged")
	if err := build(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, page); got != "unchanged" {
		t.Errorf("nothing has changed, and the page is %s", got)
	}
	write(t, filepath.Join(sources, "main.tsx"), "import './style.css'\nalert('second')\n")
	if err := build(); err != nil {
		t.Fatal(err)
	}
	after := read(t, page)
	if after == before || after == "unchanged" {
		t.Errorf("a source has changed, and the page is %s", after)
	}
	for _, name := range regexp.MustCompile(`main-\w+\.js`).FindAllString(before, -1) {
		if _, err := os.Stat(filepath.Join(output, "assets", name+".gz")); err == nil {
			t.Errorf("the old asset %s is left", name)
		}
	}
}

// A build fails if the page is too large, and if a source is wrong, and keeps the last page.
func TestBuildFails(t *testing.T) {
	testenv.Need(t, testenv.NpmConsole)
	sources, output := small(t), filepath.Join(t.TempDir(), "dist")
	args := []string{sources, filepath.Dir(testenv.NpmConsoleModules()), output}
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	before := read(t, filepath.Join(output, "index.html"))
	var noise strings.Builder
	for r := rand.New(rand.NewPCG(1, 2)); noise.Len() < 2*maxCompressed; {
		fmt.Fprintf(&noise, "%016x", r.Uint64())
	}
	for text, want := range map[string]string{
		"import './style.css'\nalert('" + noise.String() + "')": "KiB are allowed",
		"import './style.css'\nimport 'react'":                  `main.tsx:2:7: Could not resolve "react"`,
	} {
		write(t, filepath.Join(sources, "main.tsx"), text)
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if after := read(t, filepath.Join(output, "index.html")); after != before {
			t.Errorf("the page is now %s", after)
		}
	}
}

// A package with another checksum is not unpacked, and the error names it and a fix.
func TestInstallFails(t *testing.T) {
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: 2, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "{}")
	w.Close()
	z.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/uplot/-/uplot-1.6.32.tgz" {
			http.NotFound(w, r)
			return
		}
		w.Write(archive.Bytes())
	}))
	defer server.Close()
	t.Setenv("npm_config_registry", server.URL)
	var log bytes.Buffer
	cache := t.TempDir()
	all := []module{{"uplot", "1.6.32", "AAAA", "MIT"}, {"preact", "0.0.1", "AAAA", "MIT"}}
	err := install(all, cache, &log)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"uplot@1.6.32: the archive has the SHA-512 sum", "preact@0.0.1", "404", "CONSOLE=0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(cache, packagesDir, "*")); len(left) > 0 {
		t.Errorf("unpacked: %v", left)
	}
}

// The TypeScript compiler finds no error in the sources.
func TestTypes(t *testing.T) {
	testenv.Need(t, testenv.NpmConsole, testenv.NpmTypeScript)
	sources := t.TempDir() // an ordinary user may not write to the checkout
	if err := os.CopyFS(sources, os.DirFS(app(t))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(sources, packagesDir)); err != nil {
		t.Fatal(err)
	}
	if err := link(testenv.NpmConsoleModules(), filepath.Join(sources, packagesDir)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", filepath.Join(testenv.NpmTypeScriptModules(), "typescript", "lib", "tsc.js"), "-p", sources).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
