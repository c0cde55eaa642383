package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// goTool stands for the go command: each "program" that it builds appends its own name to a log.
// "make build" runs the real one. It fails if the package is $FAILS.
const goTool = `#!/bin/sh
for last; do
	[ "$prev" != -o ] || out=$last
	prev=$last
done
[ "$last" != "$FAILS" ] || exit 3
printf '#!/bin/sh\necho ran %s >>"$LOG"\n' "$(basename "$out")" >"$out"
chmod 755 "$out"
echo "built $(basename "$out")" >>"$LOG"
`

// scripts/build.sh prints each step with its duration. For "make demo" it runs the first program
// and the demonstration before it prepares the WebAssembly modules.
func TestBuildScript(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	const agent, porter = "the agent, bin/sandbar-agent", "the porter of pods, bin/sandbar-porter"
	const console, modules, command = "the browser console", "the WebAssembly modules and the PC emulator", "the command, bin/sandbar"
	demo := []string{"one program and the driver native", porter, "the command without modules", "the demonstration"}
	for name, c := range map[string]struct {
		demo, env  string
		steps      []string // with a duration
		did, fails string
	}{
		"build":     {"", "", []string{agent, porter, console, modules, command}, "built sandbar-agent|built sandbar-porter|console|modules|built sandbar", ""},
		"demo":      {"demo", "", append(append([]string{agent}, demo...), console, modules, command), "built sandbar-agent|built first|ran first|built sandbar-porter|built sandbar-demo|built demo|ran demo|console|modules|built sandbar", ""},
		"WASM=0":    {"", "WASM=0", []string{agent, porter, console, command}, "built sandbar-agent|built sandbar-porter|console|built sandbar", ""},
		"CONSOLE=0": {"", "CONSOLE=0", []string{agent, porter, modules, command}, "built sandbar-agent|built sandbar-porter|modules|built sandbar", ""},
		"a fault":   {"", "FAILS=./cmd/sandbar", []string{agent, porter, console, modules}, "built sandbar-agent|built sandbar-porter|console|modules", command},
	} {
		t.Run(name, func(t *testing.T) {
			script, err := os.ReadFile("../../../scripts/build.sh")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			log := filepath.Join(dir, "log")
			for file, text := range map[string]string{"scripts/build.sh": string(script), "scripts/wasm.sh": "echo modules >>\"$LOG\"\n", "scripts/console.sh": "echo console >>\"$LOG\"\n", "tools/go": goTool,
				"internal/agent/embedded/doc.go": "", "internal/agent/porter/embedded/doc.go": "", "log": ""} {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "scripts/build.sh"), "v1", c.demo)
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "tools")+":"+os.Getenv("PATH"), "LOG="+log, "WASM=", "CONSOLE=", c.env)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (c.fails != "") || c.fails != "" && !regexp.MustCompile(`(?m)^build: `+regexp.QuoteMeta(c.fails)+`: failed after \d+ s$`).Match(out) {
				t.Errorf("%v:\n%s", err, out)
			}
			var steps []string
			for _, m := range regexp.MustCompile(`(?m)^build: +\d+ s  (.*)$`).FindAllStringSubmatch(string(out), -1) {
				steps = append(steps, m[1])
			}
			if got := strings.Join(steps, "|"); got != strings.Join(c.steps, "|") {
				t.Errorf("steps with a duration: %q, want %q; it printed:\n%s", steps, c.steps, out)
			}
			did, err := os.ReadFile(log)
			if got := strings.ReplaceAll(strings.TrimSpace(string(did)), "\n", "|"); got != c.did || err != nil {
				t.Errorf("it did %q, want %q, %v", got, c.did, err)
			}
			if to, err := os.Readlink(filepath.Join(dir, "bin/wasm-sandbox")); (to != "sandbar" || err != nil) && c.fails == "" {
				t.Errorf("bin/wasm-sandbox leads to %q, %v", to, err)
			}
		})
	}
}
