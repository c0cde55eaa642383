package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/fetch"
	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

// fetchAll downloads all files that are missing in a directory, and reports each package to log
// before its download. The error names every package that could not be downloaded.
func fetchAll(dir string, log io.Writer) error {
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
		if err := fetch.Replace(filepath.Join(dir, m.File+"."+fetch.Licence), files[fetch.Licence]); err != nil {
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
	return fetch.Replace(to, b)
}

// npmPackage downloads NAME@VERSION from the npm registry.
func npmPackage(spec string) (map[string][]byte, error) {
	b, err := fetch.NPM(spec)
	if err != nil {
		return nil, err
	}
	return fetch.Unpack(b)
}
