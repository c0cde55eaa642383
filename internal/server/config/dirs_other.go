//go:build !unix

package config

import "io/fs"

// foreign returns "": on this system, access control lists and not modes protect the user's
// directories.
func foreign(fs.FileInfo) (why, fix string) { return "", "" }
