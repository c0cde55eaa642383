// Package tools are the utilities of the sandbox's shell: what coreutils, grep,
// sed, awk, tar and their like are elsewhere, as functions over the sandbox's
// files. Their options and output are those of the GNU programs where scripts
// rely on them; an option that is not known is an error, never ignored.
package tools

import (
	"github.com/sandbar-dev/sandbar/internal/wasmsh/program"
)

// The user and the host that programs see.
const (
	UserName = "user"
	UserID   = "1000"
	Home     = "/home/user"
	HostName = "sandbox"
)

// Programs are the utilities by name.
func Programs() map[string]program.Program {
	return map[string]program.Program{}
}
