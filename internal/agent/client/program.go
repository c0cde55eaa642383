package client

import (
	"os"
	"runtime"

	"github.com/sandbar-dev/sandbar"
)

// OwnProgram returns this process's own executable, to be the agent on a Linux machine of the
// architecture arch (GOARCH). Unsupported: this process is not such a program.
func OwnProgram(arch string) ([]byte, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != arch {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "this build has no embedded agent for Linux on " + arch,
			Fix: "use a build with an embedded agent (make build)"}
	}
	path, err := os.Executable()
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(path); err == nil {
			return b, nil
		}
	}
	return nil, sandbar.Errorf(sandbar.Internal, "reading this process's program: %w", err)
}
