package main

import (
	"errors"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/fetch"
	"github.com/sandbar-dev/sandbar/internal/linux/debian"
)

// debianPrefix begins the name of a Debian package in Module.Package.
const debianPrefix = "deb:"

// everything makes an archive's reader return all files.
func everything(string) bool { return true }

// debianPackage downloads NAME=VERSION, an architecture-independent package whose source package
// has the same name. It returns the package's files by path.
func debianPackage(spec string) (map[string][]byte, error) {
	name, version, _ := strings.Cut(spec, "=")
	client := debian.Client(fetch.Timeout)
	var errs []error
	all := debian.Mirrors()
	if len(all) == 0 {
		return nil, errors.New("apt's configuration has no mirror of Debian: set " + debian.MirrorVariable + " to the URL of one, which ends with /debian")
	}
	for _, mirror := range all {
		b, err := fetch.Get(client, mirror+"/pool/main/"+name[:1]+"/"+name+"/"+name+"_"+version+"_all.deb", nil)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files, err := debian.Files(b, fetch.MaxContents, everything)
		if err != nil {
			return nil, err
		}
		files[fetch.Licence] = files["usr/share/doc/"+name+"/copyright"]
		return files, nil
	}
	return nil, errors.Join(errs...)
}
