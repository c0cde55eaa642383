package console

import "io/fs"

// Assets has the page that is embedded into this binary, see Options.Assets; nil if the binary was
// built without the tag embedconsole.
var Assets fs.FS
