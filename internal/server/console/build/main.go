// Command build bundles the browser console. It downloads the console's npm packages by exact
// version and checksum, bundles the TypeScript sources with them, and writes the page where package
// console embeds it. It needs only Go.
//
//	build SOURCES CACHE OUTPUT    bundle the page
//	build test CACHE              download the packages that only tests use
//
// SOURCES is the directory of the sources, CACHE a directory for the unpacked packages. In OUTPUT
// it writes index.html, and assets/NAME.gz for each asset NAME, compressed with gzip. The names of
// assets contain a hash of their content. If nothing has changed since the last build, it does
// nothing.
//
// SOURCES/node_modules becomes a link to CACHE/node_modules, so that the TypeScript compiler and
// editors find the types of the packages.
package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/fetch"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "test" {
		return install(testModules(), args[1], os.Stderr)
	}
	if len(args) != 3 {
		return errors.New("usage: build SOURCES CACHE OUTPUT, or build test CACHE")
	}
	sources, cache, output := args[0], args[1], args[2]
	if err := install(modules(), cache, os.Stderr); err != nil {
		return err
	}
	if err := link(filepath.Join(cache, packagesDir), filepath.Join(sources, packagesDir)); err != nil {
		return err
	}
	inputs, err := digest(sources)
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(filepath.Join(output, stampName)); err == nil && string(last) == inputs {
		return nil
	}
	b, err := bundle(sources, filepath.Join(cache, packagesDir))
	if err != nil {
		return err
	}
	if total := b.compressed(); total > maxCompressed {
		return fmt.Errorf("the page has %d KiB, compressed; at most %d KiB are allowed", total>>10, maxCompressed>>10)
	}
	b[stampName] = []byte(inputs)
	return b.write(output)
}

// stampName is the file of the output with the digest of the build's inputs.
const stampName = ".inputs"

// packagesDir is the directory of npm packages.
const packagesDir = "node_modules"

// install downloads packages that are missing in a directory, and reports each one to log before
// its download. The error names every package that could not be downloaded.
func install(all []module, cache string, log io.Writer) error {
	var errs []error
	for _, m := range all {
		dir := filepath.Join(cache, packagesDir, filepath.FromSlash(m.name))
		done := filepath.Join(dir, ".integrity")
		if had, err := os.ReadFile(done); err == nil && string(had) == m.integrity {
			continue
		}
		fmt.Fprintln(log, "console: fetching", m.spec())
		if err := installOne(m, dir, done); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.spec(), err))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New(`the packages come from the registry that npm_config_registry, .npmrc or the npm client names; "make build CONSOLE=0" builds without the console`))
	}
	return errors.Join(errs...)
}

func installOne(m module, dir, done string) error {
	archive, err := fetch.NPM(m.spec())
	if err != nil {
		return err
	}
	sum := sha512.Sum512(archive)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != m.integrity {
		return fmt.Errorf("the archive has the SHA-512 sum %s, and %s was expected", got, m.integrity)
	}
	files, err := fetch.Unpack(archive)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, content := range files {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return fetch.Replace(done, []byte(m.integrity))
}

// link makes name a symbolic link to a directory.
func link(to, name string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if had, err := os.Readlink(name); err == nil && had == to {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(to, name)
}

// digest returns a digest of all inputs of a build: the sources, and this program, which contains
// the list of packages and the bundler.
func digest(sources string) (string, error) {
	sum := sha256.New()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	names := []string{self}
	err = filepath.WalkDir(sources, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", strings.TrimPrefix(name, sources), len(b))
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
