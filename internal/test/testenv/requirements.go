package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Interpreters must be below /usr, where sandboxes see them; sandboxes see no home directories.
var (
	// Linux: the operating system is Linux.
	Linux = require("Linux", "run the tests on Linux", func() error {
		if runtime.GOOS != "linux" {
			return fmt.Errorf("this is %s", runtime.GOOS)
		}
		return nil
	})
	// Root: the tests run as root.
	Root = require("Root", "run \"make test\" as root", func() error {
		if os.Geteuid() != 0 {
			return fmt.Errorf("running as user %d", os.Geteuid())
		}
		return nil
	})
	// NonRoot: the tests run as an ordinary user.
	NonRoot = require("NonRoot", "run \"make test-user\"", func() error {
		if os.Geteuid() == 0 {
			return errors.New("running as root")
		}
		return nil
	})
	// Once: no other pass runs the test beside this one. A test needs it when its outcome does not
	// depend on who runs it, and its package has tests whose outcome does.
	Once = require("Once", "run \"make test-user\"", func() error {
		if os.Getenv("TESTENV_BESIDE") != "" {
			return errors.New("root's pass runs this test as well")
		}
		return nil
	})
	// TestAll: the run includes the tests that are too long for "make test".
	TestAll = require("TestAll", "run \"make test-all\"", func() error {
		if !Long() {
			return errors.New("the test is too long for \"make test\"")
		}
		return nil
	})
	// UserNS: this user can create user namespaces.
	UserNS = require("UserNS", "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "+
		"kernel.apparmor_restrict_unprivileged_userns; in a container, its seccomp profile)", checkUserNS)
	// CgroupV1: the memory, pids and cpu controllers are on version 1 hierarchies in which
	// this user can create cgroups.
	CgroupV1 = require("CgroupV1", "run as root on a host whose controllers are on cgroup v1 (kernel command line "+
		"systemd.unified_cgroup_hierarchy=0)", checkCgroupV1)
	// CgroupV2: the memory, pids and cpu controllers are on the version 2 hierarchy, in which
	// this user can create cgroups.
	CgroupV2 = require("CgroupV2", "run as root (or with a delegated cgroup) on a host whose controllers are on cgroup v2", checkCgroupV2)
	// PeakReset: the same as CgroupV1 or CgroupV2, and the peak of memory of a group can be reset.
	PeakReset = require("PeakReset", "run as root on a host whose controllers are on cgroup v1, or on cgroup v2 with Linux 6.12 or newer", checkPeakReset)
	// Freezer: this user can create cgroups with limits, and freeze programs with version 2.
	Freezer = require("Freezer", "run as root on a host with Linux 5.2 or newer and the version 2 hierarchy mounted (mount -t cgroup2 cgroup2 "+
		"/sys/fs/cgroup/unified)", checkFreezer)

	// Python is /usr/bin/python3.
	Python = program("Python", "/usr/bin/python3", "python3")
	// Node is /usr/bin/node.
	Node = program("Node", "/usr/bin/node", "nodejs")
	// Npm is /usr/bin/npm, and Node.
	Npm = require("Npm", "install /usr/bin/node and /usr/bin/npm (Debian: apt-get install nodejs npm)", func() error {
		if err := Node.Err(); err != nil {
			return err
		}
		return executable("/usr/bin/npm")
	})
	// WasmModules are the interpreters of the wasm driver, beside their sources.
	WasmModules = require("WasmModules", "run \"make build\" with access to the npm registry", func() error {
		root, err := ModuleRoot()
		if err != nil {
			return err
		}
		for _, file := range []string{"python.wasm", "quickjs.wasm"} {
			if err := regular(filepath.Join(root, "internal", "wasm", "artefact", file)); err != nil {
				return err
			}
		}
		return nil
	})
	// V86 is the PC emulator, in V86Modules, and a Debian image for it, at V86Image.
	V86 = require("V86", "run \"make tools\" and \"make build\" with access to a Debian mirror and the npm registry", func() error {
		for _, file := range []string{"libv86.js", "v86.wasm", "bios.bin", "vgabios.bin", "sandbar-guest"} {
			if err := regular(filepath.Join(V86Modules(), file)); err != nil {
				return err
			}
		}
		return regular(V86Image())
	})
	// Elixir is /usr/bin/elixir.
	Elixir = program("Elixir", "/usr/bin/elixir", "elixir")
	// Bubblewrap is bwrap, a baseline of the benchmarks.
	Bubblewrap = program("Bubblewrap", "bwrap", "bubblewrap")
	// Runc is runc, and root: the driver oci needs root.
	Runc = asRoot(program("Runc", "runc", "runc"))
	// Docker is the program dockerd, and root, so that tests can start a Docker Engine
	// (package dockerd).
	Docker = require("Docker", "as root, install dockerd (Debian: apt-get install docker.io)", func() error {
		if err := Linux.Err(); err != nil {
			return err
		}
		if err := Root.Err(); err != nil {
			return err
		}
		_, err := exec.LookPath("dockerd")
		return err
	})
	// DockerCLI is docker, the client program.
	DockerCLI = program("DockerCLI", "docker", "docker.io")
	// Dpkg is dpkg, which installs Debian packages.
	Dpkg = program("Dpkg", "dpkg", "dpkg")
	// Nfpm is nfpm, which makes packages, built by "make tools".
	Nfpm = require("Nfpm", "run \"make tools\" with access to the Go module proxy", func() error {
		return executable(filepath.Join(Cache(), "bin", "nfpm"))
	})
	// Runsc is root and gVisor's runsc, built by "make tools", at RunscProgram.
	Runsc = asRoot(require("Runsc", "run \"make tools\" with access to the Go module proxy", func() error {
		return executable(RunscProgram())
	}))
	// Crun is root and crun.
	Crun = asRoot(program("Crun", "crun", "crun"))
	// Git is git.
	Git = program("Git", "git", "git")
	// Curl is curl.
	Curl = program("Curl", "curl", "curl")
	// JQ is jq.
	JQ = program("JQ", "jq", "jq")
	// CC is /usr/bin/gcc with the headers of libc.
	CC = require("CC", "install /usr/bin/gcc and libc's headers (Debian: apt-get install gcc libc6-dev)", func() error {
		if err := executable("/usr/bin/gcc"); err != nil {
			return err
		}
		return regular("/usr/include/stdio.h")
	})
	// SQLite is /usr/bin/sqlite3.
	SQLite = program("SQLite", "/usr/bin/sqlite3", "sqlite3")
	// Chromium is the browser chromium.
	Chromium = program("Chromium", "chromium", "chromium")
	// Tmux is tmux.
	Tmux = program("Tmux", "tmux", "tmux")
	// Vim is /usr/bin/vim.
	Vim = program("Vim", "/usr/bin/vim", "vim")
	// GoTool is the go command. A test that only needs a command of this module uses Build,
	// which can work without it.
	GoTool = program("GoTool", "go", "golang")

	// QEMU is an emulator of this processor's architecture, and the guest kernel of
	// scripts/qemu-kernel.sh at QEMUKernel.
	QEMU = require("QEMU", "install qemu-system-x86 and run \"make tools\"", func() error { return guestKernel(QEMUKernel()) })
	// QEMUNewer is the same with QEMUNewerKernel.
	QEMUNewer = require("QEMUNewer", "install qemu-system-x86 and run \"make tools\"", func() error { return guestKernel(QEMUNewerKernel()) })
	// VMKernel is an emulator of this processor's architecture, and the guest kernel of the vm
	// driver in VMCache.
	VMKernel = require("VMKernel", "install qemu-system-x86 and run \"make tools\"", func() error {
		if _, err := exec.LookPath(QEMUProgram()); err != nil {
			return err
		}
		return regular(filepath.Join(VMCache(), "kernel", "kernel.json"))
	})
	// VM is VMKernel, qemu 8.2 or later at VMQEMU, and a root file system for machines at VMRoot.
	VM = require("VM", "install qemu-system-x86 8.2 or later and run \"make tools\"", func() error {
		if err := VMKernel.Err(); err != nil {
			return err
		}
		if err := regular(VMRoot()); err != nil {
			return err
		}
		out, err := exec.Command(VMQEMU(), "--version").Output()
		var major, minor int
		if _, serr := fmt.Sscanf(string(out), "QEMU emulator version %d.%d", &major, &minor); serr != nil {
			return errors.Join(err, serr)
		}
		if major < 8 || major == 8 && minor < 2 {
			return fmt.Errorf("qemu is version %d.%d", major, minor)
		}
		return nil
	})
	// DebianImage is the archive of a Debian root file system with Python, made by
	// mmdebstrap, at DebianArchive.
	DebianImage = require("DebianImage", "install mmdebstrap and run \"make tools\" as root with access to a Debian mirror", func() error {
		return regular(DebianArchive())
	})
	// NpmWS is Node and the npm package ws below NodeModules.
	NpmWS = npmPackage("NpmWS", "ws", NodeModules)
	// PyWebsockets is Python and the package websockets below PythonPath.
	PyWebsockets = pythonPackage("PyWebsockets", "websockets", PythonPath)
	// PyKoyeb is Python, the package koyeb-sdk and requests below KoyebPath.
	PyKoyeb = pythonPackage("PyKoyeb", "koyeb.sandbox, requests", KoyebPath)
	// NpmIII is Node and the npm package iii-sdk below NpmIIIModules.
	NpmIII = npmPackage("NpmIII", "iii-sdk", NpmIIIModules)
	// NpmVite is Node and the npm package vite below NpmViteModules.
	NpmVite = npmPackage("NpmVite", "vite", NpmViteModules)
	// NpmTypeScript is Npm, and the TypeScript compiler below NpmTypeScriptModules.
	NpmTypeScript = require("NpmTypeScript", "run \"make tools\"", func() error {
		if err := Npm.Err(); err != nil {
			return err
		}
		return regular(filepath.Join(NpmTypeScriptModules(), "typescript", "package.json"))
	})
	// NpmConsole is the npm packages of the browser console below NpmConsoleModules.
	NpmConsole = require("NpmConsole", "run \"make build\"", func() error {
		return regular(filepath.Join(NpmConsoleModules(), "preact", "package.json"))
	})
	// NpmAxe is the npm package axe-core below NpmConsoleModules.
	NpmAxe = require("NpmAxe", "run \"make tools\"", func() error {
		return regular(filepath.Join(NpmConsoleModules(), "axe-core", "axe.min.js"))
	})
	// PyIII is Python and the package iii-sdk below PyIIIPath.
	PyIII = pythonPackage("PyIII", "iii", PyIIIPath)
	// PyIPython is Python and IPython below PyIPythonPath.
	PyIPython = pythonPackage("PyIPython", "IPython.core.interactiveshell", PyIPythonPath)
	// NpmE2B is Node and the npm packages e2b and @e2b/code-interpreter below NpmE2BModules.
	NpmE2B = npmPackage("NpmE2B", "@e2b/code-interpreter", NpmE2BModules)
	// PyE2B is Python and the packages e2b and e2b-code-interpreter below PyE2BPath.
	PyE2B = pythonPackage("PyE2B", "e2b_code_interpreter", PyE2BPath)
	// NpmMCP is Node and the npm packages @modelcontextprotocol/sdk and inspector-cli below
	// NpmMCPModules.
	NpmMCP = npmPackage("NpmMCP", "@modelcontextprotocol/inspector-cli", NpmMCPModules)
	// PyMCP is Python and the package mcp below PyMCPPath.
	PyMCP = pythonPackage("PyMCP", "mcp", PyMCPPath)
	// NpmAgents is Node and the npm packages ai and zod below NpmAgentsModules.
	NpmAgents = npmPackage("NpmAgents", "ai", NpmAgentsModules)
	// PyAgents is Python and the packages langchain-core and smolagents below PyAgentsPath.
	PyAgents = pythonPackage("PyAgents", "langchain_core.tools, smolagents", PyAgentsPath)
	// PyWheels is Python and wheels of pip, numpy, pandas, matplotlib, httpx and their dependencies,
	// in WheelsDir.
	PyWheels = require("PyWheels", "run \"make tools\"", func() error {
		if err := Python.Err(); err != nil {
			return err
		}
		return regular(filepath.Join(WheelsDir(), "wanted"))
	})
	// ShellSuites are the test suites of toybox, busybox and awk in ShellSuitesDir.
	ShellSuites = require("ShellSuites", "run \"make tools\" with access to a Debian mirror", func() error {
		return regular(filepath.Join(ShellSuitesDir(), "wanted"))
	})
)

// ShellSuitesDir is the directory of the test suites that "make tools" unpacks, with one
// directory per Debian source package.
func ShellSuitesDir() string { return filepath.Join(Cache(), "suites") }

// V86Modules is the directory of the PC emulator's files.
func V86Modules() string {
	root, err := ModuleRoot()
	if err != nil {
		root = string(filepath.Separator) // no files there: V86 is not met
	}
	return filepath.Join(root, "internal", "wasm", "artefact")
}

// V86Image is the image that scripts/v86-image.sh builds.
func V86Image() string { return filepath.Join(Cache(), "v86", "image.tar") }

// NodeModules is the NODE_PATH of the npm packages that "make tools" fetches.
func NodeModules() string { return filepath.Join(Cache(), "npm", "node_modules") }

// PythonPath is the PYTHONPATH of the Python packages that "make tools" fetches.
func PythonPath() string { return filepath.Join(Cache(), "py") }

// KoyebPath is the PYTHONPATH of the executor protocol's SDK.
func KoyebPath() string { return filepath.Join(Cache(), "koyeb") }

// NpmIIIModules is the NODE_PATH of the iii protocol's SDK.
func NpmIIIModules() string { return filepath.Join(Cache(), "iii-npm", "node_modules") }

// NpmViteModules is the directory node_modules with Vite and its dependencies.
func NpmViteModules() string { return filepath.Join(Cache(), "vite", "node_modules") }

// NpmTypeScriptModules is the directory node_modules with the TypeScript compiler.
func NpmTypeScriptModules() string { return filepath.Join(Cache(), "typescript", "node_modules") }

// NpmConsoleModules is the directory node_modules with the packages of the browser console and of
// its tests.
func NpmConsoleModules() string { return filepath.Join(Cache(), "console", "node_modules") }

// PyIIIPath is the PYTHONPATH of the iii protocol's SDK.
func PyIIIPath() string { return filepath.Join(Cache(), "iii-py") }

// PyIPythonPath is the PYTHONPATH of IPython.
func PyIPythonPath() string { return filepath.Join(Cache(), "ipython") }

// NpmE2BModules is the NODE_PATH of the E2B protocol's SDKs.
func NpmE2BModules() string { return filepath.Join(Cache(), "e2b-npm", "node_modules") }

// PyE2BPath is the PYTHONPATH of the E2B protocol's SDKs.
func PyE2BPath() string { return filepath.Join(Cache(), "e2b-py") }

// NpmMCPModules is the directory node_modules with the Model Context Protocol's SDK and inspector.
func NpmMCPModules() string { return filepath.Join(Cache(), "mcp-npm", "node_modules") }

// PyMCPPath is the PYTHONPATH of the Model Context Protocol's SDK.
func PyMCPPath() string { return filepath.Join(Cache(), "mcp-py") }

// NpmAgentsModules is the directory node_modules with Vercel's AI SDK.
func NpmAgentsModules() string { return filepath.Join(Cache(), "agents-npm", "node_modules") }

// PyAgentsPath is the PYTHONPATH of LangChain and smolagents.
func PyAgentsPath() string { return filepath.Join(Cache(), "agents-py") }

// WheelsDir is the directory of the wheels for /usr/bin/python3 that "make tools" fetches.
func WheelsDir() string { return filepath.Join(Cache(), "wheels") }

// RunscProgram is the path of the runsc that "make tools" builds.
func RunscProgram() string { return filepath.Join(Cache(), "bin", "runsc") }

// QEMUProgram is the name of the emulator of this processor.
func QEMUProgram() string {
	if runtime.GOARCH == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// QEMUKernel is the path of the guest kernel of scripts/qemu-kernel.sh. It has the controllers of
// cgroup version 1, which Debian's kernels from Linux 6.12 on do not have.
func QEMUKernel() string { return filepath.Join(Cache(), "qemu", "vmlinuz") }

// QEMUNewerKernel is the path of a guest kernel from Linux 6.12 on.
func QEMUNewerKernel() string { return filepath.Join(Cache(), "qemu-newer", "vmlinuz") }

func guestKernel(path string) error {
	if _, err := exec.LookPath(QEMUProgram()); err != nil {
		return err
	}
	return regular(path)
}

// VMCache is the directory in which scripts/tools.sh prepares the guest kernel of the vm driver.
func VMCache() string { return filepath.Join(Cache(), "vm") }

// VMQEMU is the path or name of a qemu for the vm driver: that of scripts/tools.sh, if it has
// fetched one.
func VMQEMU() string {
	path := filepath.Join(Cache(), "vm-qemu", "usr", "bin", "qemu-system-x86_64")
	if executable(path) == nil {
		return path
	}
	return QEMUProgram()
}

// VMRoot is the path of the root of machines that scripts/tools.sh builds from the Debian image.
func VMRoot() string { return filepath.Join(VMCache(), "debian.erofs") }

// VMOptions returns the options of the vm driver for tests. Its cache directory, with the kernel,
// is kept between test runs; for a user who cannot write to Cache it is below the user's cache.
func VMOptions() (map[string]string, error) {
	dir, err := Kept("vm")
	if err == nil && dir != VMCache() {
		err = copyKernel(filepath.Join(VMCache(), "kernel"), filepath.Join(dir, "kernel"))
	}
	return map[string]string{"qemu": VMQEMU(), "accelerator": "tcg", "cache": dir, "root": VMRoot()}, err
}

// copyKernel copies a prepared kernel, unless the copy exists.
func copyKernel(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(filepath.Join(tmp, "kernel"), os.DirFS(from)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tmp, "kernel"), to); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// DebianArchive is the path of the root file system's archive that scripts/tools.sh makes,
// uncompressed or compressed with zstd.
func DebianArchive() string { return filepath.Join(Cache(), "images", "debian.tar") }

// program requires an executable: a path, or a name looked up in PATH.
func program(name, file, debian string) Requirement {
	return require(name, "install "+file+" (Debian: apt-get install "+debian+")", func() error {
		if filepath.IsAbs(file) {
			return executable(file)
		}
		_, err := exec.LookPath(file)
		return err
	})
}

// asRoot returns r with the additional requirement of root.
func asRoot(r Requirement) Requirement {
	return require(r.Name, "as root, "+r.How, func() error {
		if err := Root.Err(); err != nil {
			return err
		}
		return r.Err()
	})
}

// npmPackage requires Node and a package in a directory of "make tools".
func npmPackage(name, module string, dir func() string) Requirement {
	return require(name, "run \"make tools\"", func() error {
		if err := Node.Err(); err != nil {
			return err
		}
		return regular(filepath.Join(dir(), module, "package.json"))
	})
}

// pythonPackage requires that Python can import modules from a directory of "make tools".
func pythonPackage(name, modules string, dir func() string) Requirement {
	return require(name, "run \"make tools\"", func() error {
		if err := Python.Err(); err != nil {
			return err
		}
		cmd := exec.Command("/usr/bin/python3", "-c", "import "+modules)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+dir(), "PYTHONDONTWRITEBYTECODE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", modules, err, lastLine(out))
		}
		return nil
	})
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

func regular(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	return nil
}

// lastLine returns the last non-empty line of a program's output.
func lastLine(out []byte) string {
	end := len(out)
	for end > 0 && out[end-1] == '\n' {
		end--
	}
	start := end
	for start > 0 && out[start-1] != '\n' {
		start--
	}
	return string(out[start:end])
}
