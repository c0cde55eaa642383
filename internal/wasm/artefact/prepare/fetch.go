package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/linux/debian"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

// The bounds of one package, which is read into memory.
const (
	maxPackage   = 64 << 20  // bytes, compressed
	maxContents  = 256 << 20 // bytes, uncompressed
	fetchTimeout = 10 * time.Minute
)

// licence is the name of the licence text among the files of a package.
const licence = "LICENSE"

// fetch downloads all files that are missing in a directory, and reports each package to log before
// its download. The error names every package that could not be downloaded.
func fetch(dir string, log io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var packages []string
	missing := map[string][]artefact.Module{}
	for _, m := range artefact.All() {
		if artefact.CheckModule(dir, m) == nil {
			continue
		}
		if !slices.Contains(packages, m.Package) {
			packages = append(packages, m.Package)
		}
		missing[m.Package] = append(missing[m.Package], m)
	}
	var errs []error
	for _, name := range packages {
		fmt.Fprintln(log, "wasm: fetching", name)
		if err := fetchPackage(name, missing[name], dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// fetchPackage downloads one package and writes the wanted files to a directory, each with its
// licence.
func fetchPackage(name string, wanted []artefact.Module, dir string) error {
	read := npmPackage
	if strings.HasPrefix(name, debianPrefix) {
		read = debianPackage
	}
	files, err := read(strings.TrimPrefix(name, debianPrefix))
	if err != nil {
		return err
	}
	for _, m := range wanted {
		published, ok := files[m.Path]
		if !ok {
			return fmt.Errorf("the package has no file %s", m.Path)
		}
		if err := write(m, published, filepath.Join(dir, m.File)); err != nil {
			return err
		}
		if err := replace(filepath.Join(dir, m.File+"."+licence), files[licence]); err != nil {
			return err
		}
	}
	return nil
}

// write checks and prepares a file as published, and writes the result.
func write(m artefact.Module, published []byte, to string) error {
	if sum := artefact.SHA256(published); sum != m.Upstream {
		return fmt.Errorf("%s has the SHA-256 sum %s, and %s was expected", m.Path, sum, m.Upstream)
	}
	b, err := m.Prepare(published)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	if sum := artefact.SHA256(b); sum != m.Prepared {
		return fmt.Errorf("%s has the SHA-256 sum %s when prepared, and %s was expected", m.Path, sum, m.Prepared)
	}
	return replace(to, b)
}

// replace writes a file atomically, so that a concurrent build sees the old file or the new one.
func replace(to string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".fetched-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// get downloads a URL.
func get(client *http.Client, url string, header http.Header) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", req.URL.Redacted(), resp.Status)
	}
	return readAll(resp.Body, maxPackage)
}

// readAll reads r to the end. More than most bytes are an error.
func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return b, err
}

// npmPackage downloads NAME@VERSION from the npm registry. It removes the archive's top directory
// from the names of the files.
func npmPackage(spec string) (map[string][]byte, error) {
	at := strings.LastIndexByte(spec, '@')
	name, version := spec[:at], spec[at+1:]
	settings, err := readNPM(os.Environ())
	if err != nil {
		return nil, err
	}
	client, err := settings.client()
	if err != nil {
		return nil, err
	}
	registry := settings.registry(name)
	if registry == "" {
		return nil, errors.New("no npm registry is configured: set npm_config_registry to the URL of one, or install npm")
	}
	b, err := get(client, registry+name+"/-/"+path.Base(name)+"-"+version+".tgz", settings.authorization(registry))
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	all, err := debian.ReadTar(z, maxContents, everything)
	files := map[string][]byte{}
	for name, content := range all {
		if _, below, ok := strings.Cut(name, "/"); ok {
			files[below] = content
		}
	}
	return files, err
}

// lines returns the lines of a file, or none if the file does not exist.
func lines(name string) ([]string, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return strings.Split(string(b), "\n"), err
}
