package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/sandbar-dev/sandbar/internal/fetch"
)

// maxCompressed bounds the sum of all files of the page, in bytes, compressed.
const maxCompressed = 400 << 10

// assets is the path of the page's assets.
const assets = "/console/assets/"

// page is the files of a bundled page. Those below assets/ are compressed.
type page map[string][]byte

// compressed returns the size of the page as it is sent, in bytes.
func (p page) compressed() (total int) {
	for _, b := range p {
		total += len(b)
	}
	return total
}

// write replaces a directory by the page.
func (p page) write(dir string) error {
	fresh, err := os.MkdirTemp(filepath.Dir(dir), ".dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // nothing is there after the rename
	for name, b := range p {
		to := filepath.Join(fresh, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(fresh, 0o755), os.RemoveAll(dir)); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// add adds a compressed asset.
func (p page) add(name string, content []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = z.Write(content)
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}
	p["assets/"+name+".gz"] = b.Bytes()
	return nil
}

// hashed returns a name with a hash of the content before the suffix.
func hashed(base, suffix string, content []byte) string {
	sum := sha256.Sum256(content)
	return base + "-" + hex.EncodeToString(sum[:4]) + suffix
}

// bundle bundles the sources of a directory with the packages of another.
func bundle(sources, packages string) (page, error) {
	sources, err := filepath.Abs(sources)
	if err != nil {
		return nil, err
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:       []string{"main.tsx"},
		AbsWorkingDir:     sources,
		NodePaths:         []string{packages},
		Outdir:            filepath.Join(sources, "dist"), // nothing is written: Write is false
		PublicPath:        assets,
		Bundle:            true,
		Splitting:         true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		MinifyWhitespace:  true,
		MinifySyntax:      true,
		MinifyIdentifiers: true,
		Charset:           api.CharsetUTF8,
		EntryNames:        "[name]-[hash]",
		ChunkNames:        "[name]-[hash]",
		AssetNames:        "[name]-[hash]",
		Loader:            map[string]api.Loader{".svg": api.LoaderFile, ".frame.css": api.LoaderFile},
		LegalComments:     api.LegalCommentsNone, // the file of licences has them
		Metafile:          true,
		LogLevel:          api.LogLevelSilent,
	})
	if len(result.Errors)+len(result.Warnings) > 0 {
		var errs []error
		for _, m := range append(result.Errors, result.Warnings...) {
			if m.Location == nil {
				errs = append(errs, errors.New(m.Text))
				continue
			}
			errs = append(errs, fmt.Errorf("%s:%d:%d: %s", m.Location.File, m.Location.Line, m.Location.Column, m.Text))
		}
		return nil, errors.Join(errs...)
	}
	p := page{}
	for _, f := range result.OutputFiles {
		if err := p.add(filepath.Base(f.Path), f.Contents); err != nil {
			return nil, err
		}
	}
	texts, err := licences(packages)
	if err != nil {
		return nil, err
	}
	licencesName := hashed("licences", ".txt", texts)
	if err := p.add(licencesName, texts); err != nil {
		return nil, err
	}
	icon, err := os.ReadFile(filepath.Join(sources, "icon.svg"))
	if err != nil {
		return nil, err
	}
	iconName := hashed("icon", ".svg", icon)
	if err := p.add(iconName, icon); err != nil {
		return nil, err
	}
	html, err := os.ReadFile(filepath.Join(sources, "index.html"))
	if err != nil {
		return nil, err
	}
	js, css, static, err := entry(result.Metafile)
	if err != nil {
		return nil, err
	}
	var preload strings.Builder
	for _, name := range static {
		fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s%s\">\n", assets, name)
	}
	p["index.html"] = []byte(strings.NewReplacer("{SCRIPT}", assets+js, "{STYLE}", assets+css, "{ICON}", assets+iconName,
		"{LICENCES}", assets+licencesName, "{PRELOAD}\n", preload.String()).Replace(string(html)))
	return p, nil
}

// entry returns from esbuild's description of its output the names of the entry's script and style,
// and of the scripts that the entry imports statically.
func entry(metafile string) (js, css string, static []string, err error) {
	var meta struct {
		Outputs map[string]struct {
			EntryPoint string
			CSSBundle  string
			Imports    []struct{ Path, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return "", "", nil, err
	}
	var follow func(name string)
	follow = func(name string) {
		for _, i := range meta.Outputs[name].Imports {
			if base := filepath.Base(i.Path); i.Kind == "import-statement" && !slices.Contains(static, base) {
				static = append(static, base)
				follow(i.Path)
			}
		}
	}
	for name, o := range meta.Outputs {
		if o.EntryPoint == "main.tsx" {
			js, css = filepath.Base(name), filepath.Base(o.CSSBundle)
			follow(name)
		}
	}
	if js == "" || css == "" {
		return "", "", nil, errors.New("main.tsx has no script or no style")
	}
	return js, css, static, nil
}

// licences returns the licence texts of all packages.
func licences(packages string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("The console contains these packages.\n")
	for _, m := range modules() {
		text, err := os.ReadFile(filepath.Join(packages, filepath.FromSlash(m.name), fetch.Licence))
		if err != nil {
			return nil, fmt.Errorf("the licence of %s: %w", m.spec(), err)
		}
		fmt.Fprintf(&b, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("-", 72), m.spec(), m.licence, strings.TrimSpace(string(text)))
	}
	return b.Bytes(), nil
}
