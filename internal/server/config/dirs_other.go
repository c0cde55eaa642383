//go:build !unix

package config

import "io/fs"

// foreign has nothing to check where modes and owners are not what protects a
// directory: the access lists of the user's own directories do.
func foreign(fs.FileInfo) (why, fix string) { return "", "" }
