//go:build embedconsole

package console

import (
	"embed"
	"io/fs"
)

//go:embed dist/index.html dist/assets
var dist embed.FS

func init() {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the path is valid
	}
	Assets = built
}
