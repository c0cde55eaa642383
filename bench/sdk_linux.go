package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// sdkRequest measures a request of an SDK and the same request by its HTTP library alone. program
// runs the file of this directory; most is the largest difference of the medians, in ms.
func sdkRequest(program, file string, most float64) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		root, err := testenv.ModuleRoot()
		if err != nil {
			return measured{}, err
		}
		dir, err := os.MkdirTemp("", "sandbar-bench-")
		if err != nil {
			return measured{}, err
		}
		defer os.RemoveAll(dir)
		module := filepath.Join(dir, "node_modules", "sandbar")
		if err := os.MkdirAll(module, 0o755); err != nil {
			return measured{}, err
		}
		// A wheel for any platform can be imported as it is.
		install := exec.Command("sh", "-c", `sh scripts/sdk.sh v1.0.0 "$1" && tar -xzf "$1/sandbar-1.0.0.tgz" --strip-components 1 -C "$2" && cp bench/sdk.* "$1"`, "sh", dir, module)
		install.Dir = root
		if out, err := install.CombinedOutput(); err != nil {
			return measured{}, fmt.Errorf("%w: %s", err, out)
		}
		x, err := newLive(l)
		if err != nil {
			return measured{}, err
		}
		defer x.close()
		cmd := exec.CommandContext(x.ctx, program, filepath.Join(dir, file))
		cmd.Env = append(os.Environ(), "SANDBAR_URL=http://"+x.daemon.addr, "SANDBAR_TOKEN="+x.daemon.token, "SANDBOX="+x.id, "NO_PROXY=*",
			"PYTHONPATH="+filepath.Join(dir, "sandbar-1.0.0-py3-none-any.whl")+":"+testenv.PyE2BPath())
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return measured{}, err
		}
		var sdk, raw float64
		if _, err := fmt.Sscan(string(out), &sdk, &raw); err != nil {
			return measured{}, fmt.Errorf("%w: %s", err, out)
		}
		return measured{value: fmt.Sprintf("p50 %.2f ms", sdk), baseline: fmt.Sprintf("without the SDK: %.2f ms", raw), kept: sdk-raw <= most}, nil
	}
}
