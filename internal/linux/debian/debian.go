// Package debian downloads and unpacks packages of Debian and its derivatives without installing
// them. The mirrors and the proxy come from apt's configuration.
package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// MirrorVariable is the environment variable with the URL of a mirror, which ends with /debian. It
// is tried before the mirrors of apt.
const MirrorVariable = "DEBIAN_MIRROR"

// Mirrors returns the mirrors of Debian to try: MirrorVariable, then those in apt's configuration
// (sources.list(5)).
func Mirrors() []string {
	var all []string
	add := func(uri string) {
		if uri = strings.TrimRight(uri, "/"); uri != "" && !slices.Contains(all, uri) {
			all = append(all, uri)
		}
	}
	add(os.Getenv(MirrorVariable))
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"} {
		names, _ := filepath.Glob(pattern) // the pattern is right
		for _, name := range names {
			for _, uri := range aptMirrors(lines(name)) {
				add(uri)
			}
		}
	}
	return all
}

// aptMirrors returns the mirrors in a source list of apt, in one-line or deb822 format. Comments
// are ignored.
func aptMirrors(list []string) []string {
	var all []string
	for _, line := range list {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, word := range strings.Fields(line) {
			if aptMirror.MatchString(word) {
				all = append(all, word)
			}
		}
	}
	return all
}

// aptMirror matches the URI of a Debian mirror.
var aptMirror = regexp.MustCompile(`^https?://\S+/debian/?$`)

// aptProxy matches apt's setting for a proxy (apt.conf(5)).
var aptProxy = regexp.MustCompile(`(?m)^\s*Acquire::https?::[Pp]roxy\s+"(http[^"]+)"`)

// Client returns an HTTP client with the proxy of apt's configuration or of the environment.
// timeout bounds each request, body included.
func Client(timeout time.Duration) *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	names, _ := filepath.Glob("/etc/apt/apt.conf.d/*") // the pattern is right
	for _, name := range append(names, "/etc/apt/apt.conf") {
		if m := aptProxy.FindStringSubmatch(strings.Join(lines(name), "\n")); m != nil {
			if u, err := url.Parse(m[1]); err == nil {
				t.Proxy = http.ProxyURL(u)
			}
		}
	}
	return &http.Client{Transport: t, Timeout: timeout}
}

// lines returns the lines of a file, none if it cannot be read: such a file sets nothing.
func lines(name string) []string {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// Files returns the regular files of a package for which want returns true, by their paths without
// a leading slash. A package is an ar(1) archive whose member data.tar has them (deb(5)). More than
// most uncompressed bytes are an error.
func Files(deb []byte, most int64, want func(name string) bool) (map[string][]byte, error) {
	const magic, header = "!<arch>\n", 60
	rest, ok := bytes.CutPrefix(deb, []byte(magic))
	if !ok {
		return nil, errors.New("not a Debian package")
	}
	for len(rest) >= header {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-header {
			return nil, errors.New("a truncated Debian package")
		}
		member := rest[header : header+size]
		if compression, ok := strings.CutPrefix(name, "data.tar"); ok {
			r, err := decompress(compression, member)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return ReadTar(r, most, want)
		}
		rest = rest[min(header+size+size%2, len(rest)):]
	}
	return nil, errors.New("a Debian package without data")
}

func decompress(name string, b []byte) (io.ReadCloser, error) {
	switch r := bytes.NewReader(b); name {
	case "":
		return io.NopCloser(r), nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		x, err := xz.NewReader(r)
		return io.NopCloser(x), err
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("a Debian package with data.tar%s", name)
}

// ReadTar returns the regular files of a tar archive for which want returns true, by their cleaned
// paths without a leading slash. More than most bytes are an error.
func ReadTar(r io.Reader, most int64, want func(name string) bool) (map[string][]byte, error) {
	files := map[string][]byte{}
	bounded := &io.LimitedReader{R: r, N: most}
	archive := tar.NewReader(bounded)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			if name := strings.TrimPrefix(path.Clean("/"+h.Name), "/"); want(name) {
				files[name], err = io.ReadAll(archive)
			}
		}
		if err != nil && bounded.N <= 0 {
			return nil, fmt.Errorf("more than %d bytes: %w", most, fs.ErrInvalid)
		}
		if err != nil {
			return nil, err
		}
	}
}
