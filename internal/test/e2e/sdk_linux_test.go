package e2e

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// plotting are the packages of the programs in examples/sdk inside the sandbox.
const plotting = "numpy pandas python-dateutil tzdata matplotlib contourpy cycler fonttools kiwisolver packaging pillow pyparsing six"

// The tools of examples/adapters work with the libraries that they are for, which call them as they
// do for a model.
func TestAdapters(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.UserNS, testenv.Python, testenv.PyWheels, testenv.NpmTypeScript, testenv.PyAgents, testenv.NpmAgents)
	dir := t.TempDir()
	buildSDKs(t, dir)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	adapters := filepath.Join(root, "examples", "adapters")
	for _, name := range []string{"ai", "zod"} {
		if err := os.Symlink(filepath.Join(testenv.NpmAgentsModules(), name), filepath.Join(dir, "node_modules", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range glob(t, filepath.Join(adapters, "*.mjs")) {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d := newDaemon(t, t.TempDir())
	for _, args := range [][]string{
		{"/usr/bin/python3", "adapters.py", "langchain"}, {"/usr/bin/python3", "adapters.py", "smolagents"},
		{"/usr/bin/python3", "adapters.py", "functions"}, {"/usr/bin/node", "adapters.mjs"},
	} {
		t.Run(args[len(args)-1], func(t *testing.T) {
			cmd := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...)
			cmd.Dir = dir
			cmd.Env = append(environ(), "SANDBAR_URL=http://"+d.addr, "SANDBAR_TOKEN="+token, "HOME="+dir, "ADAPTERS="+adapters, "WHEELS="+testenv.WheelsDir(),
				"PYTHONPATH="+filepath.Join(dir, "py")+":"+testenv.PyAgentsPath(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*", "LANGSMITH_TRACING=false")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	d.endClean(t)
}

// The programs of examples/sdk have at most 8 lines and work without a daemon, with a wheel that
// has the command, and with the npm packages of the SDK and the command.
func TestSDKExamples(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.PyWheels, testenv.NpmTypeScript)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, commands := t.TempDir(), t.TempDir()
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if err := os.Symlink(testenv.Build(t, "cmd/sandbar"), filepath.Join(commands, runtime.GOARCH)); err != nil {
		t.Fatal(err)
	}
	foreign := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...) // a header of the other processor
	foreign[18] = byte(machines[other])
	if err := os.WriteFile(filepath.Join(commands, other), foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	buildSDKs(t, dir, "SDK_ARCHS=amd64 arm64", "SDK_COMMANDS="+commands)
	t.Run("packages", func(t *testing.T) { checkPackages(t, dir, filepath.Join(commands, other)) })
	for name, program := range map[string]string{"first.py": "/usr/bin/python3", "first.mjs": "/usr/bin/node"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "examples", "sdk", name))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 8 {
				t.Errorf("the program has %d lines", n)
			}
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			overlay := t.TempDir()
			cmd := exec.CommandContext(within(t, 5*time.Minute), "unshare", "--mount", "--propagation", "private", "sh", "-c", installThere, "sh",
				testenv.WheelsDir(), overlay, plotting, program, file)
			cmd.Dir = dir
			cmd.Env = append(environ(), "PYTHONPATH="+filepath.Join(dir, "py"), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil || !regexp.MustCompile(`^(\d{4,} )?24\nhttp://8000-\S+\n$`).Match(out) {
				t.Errorf("%v: %s%s", err, out, &said)
			}
			if name == "first.py" {
				png, err := os.ReadFile(filepath.Join(dir, "chart.png"))
				if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
					t.Errorf("chart.png: %.20q, %v", png, err)
				}
			}
		})
	}
}

// machines are the numbers of processors in headers of ELF.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkPackages checks that each package with a command is for the processor of its command.
// foreign is a command of another processor than this one.
func checkPackages(t *testing.T, dir, foreign string) {
	for arch, tag := range map[string]string{"amd64": "manylinux2014_x86_64", "arm64": "manylinux2014_aarch64"} {
		wheel, err := zip.OpenReader(filepath.Join(dir, "packages", "sandbar-1.0.0-py3-none-"+tag+".whl"))
		if err != nil {
			t.Fatal(err)
		}
		defer wheel.Close()
		f, err := wheel.Open("sandbar/bin/sandbar")
		if err != nil {
			t.Fatal(err)
		}
		header := make([]byte, 20)
		if _, err := io.ReadFull(f, header); err != nil || header[18] != byte(machines[arch]) {
			t.Errorf("the wheel for %s has a command with the header %x, %v", arch, header, err)
		}
		npm := filepath.Join(dir, "packages", "sandbar-linux-"+npmCPU(arch)+"-1.0.0.tgz")
		b, err := exec.CommandContext(t.Context(), "tar", "-xzOf", npm, "package/package.json").Output()
		var made struct {
			Name    string
			OS, CPU []string
		}
		if err != nil || json.Unmarshal(b, &made) != nil || made.Name != "@sandbar/linux-"+npmCPU(arch) || fmt.Sprint(made.OS, made.CPU) != "[linux] ["+npmCPU(arch)+"]" {
			t.Errorf("%s: %s, %v", npm, b, err)
		}
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join(root, "sdk", "python", "build.py"), "v1.0.1", dir, runtime.GOARCH, foreign)
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("is no command for Linux on "+runtime.GOARCH)) {
		t.Errorf("a wheel with the command of another processor: %v: %s", err, out)
	}
}
