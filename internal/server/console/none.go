//go:build !embedconsole

package console

import "io/fs"

// Assets returns nil, because the binary was built without the tag embedconsole.
func Assets() fs.FS { return nil }
