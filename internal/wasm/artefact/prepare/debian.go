package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ulikunitz/xz"
)

// debianPrefix begins the name of a Debian package in Module.Package.
const debianPrefix = "deb:"

// mirrors returns the mirrors of Debian to try: DEBIAN_MIRROR, then those in apt's configuration
// (sources.list(5)).
func mirrors() []string {
	var all []string
	add := func(uri string) {
		if uri = strings.TrimRight(uri, "/"); uri != "" && !slices.Contains(all, uri) {
			all = append(all, uri)
		}
	}
	add(os.Getenv("DEBIAN_MIRROR"))
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"} {
		names, _ := filepath.Glob(pattern) // the pattern is right
		for _, name := range names {
			list, _ := lines(name) // a file that cannot be read names no mirror
			for _, uri := range aptMirrors(list) {
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

// debianClient returns an HTTP client with the proxy of apt's configuration or of the environment.
func debianClient() *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	names, _ := filepath.Glob("/etc/apt/apt.conf.d/*") // the pattern is right
	for _, name := range append(names, "/etc/apt/apt.conf") {
		all, _ := lines(name) // a file that cannot be read names no proxy
		if m := aptProxy.FindStringSubmatch(strings.Join(all, "\n")); m != nil {
			if u, err := url.Parse(m[1]); err == nil {
				t.Proxy = http.ProxyURL(u)
			}
		}
	}
	return &http.Client{Transport: t, Timeout: fetchTimeout}
}

// debianPackage downloads NAME=VERSION, an architecture-independent package whose source package
// has the same name. It returns the package's files by path.
func debianPackage(spec string) (map[string][]byte, error) {
	name, version, _ := strings.Cut(spec, "=")
	client := debianClient()
	var errs []error
	all := mirrors()
	if len(all) == 0 {
		return nil, errors.New("apt's configuration has no mirror of Debian: set DEBIAN_MIRROR to the URL of one, which ends with /debian")
	}
	for _, mirror := range all {
		b, err := get(client, mirror+"/pool/main/"+name[:1]+"/"+name+"/"+name+"_"+version+"_all.deb", nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files, err := undeb(b)
		if err != nil {
			return nil, err
		}
		files[licence] = files["usr/share/doc/"+name+"/copyright"]
		return files, nil
	}
	return nil, errors.Join(errs...)
}

// undeb returns the files of a package: an ar(1) archive whose member data.tar has them (deb(5)).
func undeb(deb []byte) (map[string][]byte, error) {
	const magic, header = "!<arch>\n", 60
	rest, ok := bytes.CutPrefix(deb, []byte(magic))
	if !ok {
		return nil, errors.New("not a Debian package")
	}
	for len(rest) >= header {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || size < 0 || size > len(rest)-header {
			return nil, errors.New("a package of Debian that is cut off")
		}
		member := rest[header : header+size]
		if compression, ok := strings.CutPrefix(name, "data.tar"); ok {
			r, err := decompress(compression, member)
			if err != nil {
				return nil, err
			}
			return untar(r)
		}
		rest = rest[min(header+size+size%2, len(rest)):]
	}
	return nil, errors.New("a package of Debian without data")
}

func decompress(name string, b []byte) (io.Reader, error) {
	switch r := bytes.NewReader(b); name {
	case "":
		return r, nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		return xz.NewReader(r)
	}
	return nil, fmt.Errorf("a package of Debian with data.tar%s", name)
}
