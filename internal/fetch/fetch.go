// Package fetch downloads third-party files for the commands that prepare a build. It needs no
// client program of a registry, and writes files atomically, so that a concurrent build sees the
// old file or the new one.
package fetch

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
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/linux/debian"
)

// The bounds of one package, which is read into memory.
const (
	MaxPackage  = 64 << 20  // bytes, compressed
	MaxContents = 256 << 20 // bytes, uncompressed
	// Timeout bounds one download.
	Timeout = 10 * time.Minute
)

// Licence is the name of the licence text among the files of a package.
const Licence = "LICENSE"

// Get downloads a URL. More than MaxPackage bytes are an error.
func Get(client *http.Client, url string, header http.Header) ([]byte, error) {
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
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxPackage+1))
	if err == nil && len(b) > MaxPackage {
		err = fmt.Errorf("GET %s: more than %d bytes", req.URL.Redacted(), MaxPackage)
	}
	return b, err
}

// NPM downloads the archive of NAME@VERSION from the npm registry that the npm client would use.
func NPM(spec string) ([]byte, error) {
	at := strings.LastIndexByte(spec, '@')
	name, version := spec[:at], spec[at+1:]
	s, err := readSettings(os.Environ())
	if err != nil {
		return nil, err
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	registry := s.registry(name)
	if registry == "" {
		return nil, errors.New("no npm registry is configured: set npm_config_registry to the URL of one, or install npm")
	}
	return Get(client, registry+name+"/-/"+path.Base(name)+"-"+version+".tgz", s.authorization(registry))
}

// Unpack returns the regular files of an npm package's archive, without the archive's top directory
// in their names.
func Unpack(archive []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	all, err := debian.ReadTar(z, MaxContents, func(string) bool { return true })
	files := map[string][]byte{}
	for name, content := range all {
		if _, below, ok := strings.Cut(name, "/"); ok {
			files[below] = content
		}
	}
	return files, err
}

// Replace writes a file atomically.
func Replace(to string, content []byte) error {
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

// lines returns the lines of a file, or none if the file does not exist.
func lines(name string) ([]string, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return strings.Split(string(b), "\n"), err
}
