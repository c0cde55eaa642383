//go:build embedconsole

package console

import (
	"embed"
	"io/fs"
)

//go:embed dist/index.html dist/assets
var dist embed.FS

// Assets returns the page that is embedded into this binary, see Options.Assets.
func Assets() fs.FS {
	built, _ := fs.Sub(dist, "dist") // it fails for an invalid path only
	return built
}
