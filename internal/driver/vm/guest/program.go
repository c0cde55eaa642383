package guest

import (
	"io/fs"
	"os"

	"github.com/erofs/go-erofs"
)

// HasProgram reports whether the root has an executable file of that name in a directory of PATH.
func (r Root) HasProgram(name string) bool {
	f, err := os.Open(r.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	files, err := erofs.Open(f)
	if err != nil {
		return false
	}
	for _, dir := range []string{"usr/local/bin/", "usr/bin/", "bin/"} {
		if info, err := fs.Stat(files, dir+name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
