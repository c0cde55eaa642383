package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Command is a command of this module that tests start as a program.
type Command struct {
	Package string   // path below the module's root, such as "cmd/sandbar"
	Tags    []string // build tags
	Script  string   // makes what the command embeds, such as "scripts/console.sh"; optional
}

// Commands returns all commands that Build accepts. The runner builds them for the ordinary
// user's tests, which have no go command. The command with the browser console is among them if
// NpmConsole is met.
func Commands() []Command {
	all := []Command{
		{Package: "cmd/sandbar"},
		{Package: "cmd/sandbar-agent"},
		{Package: "cmd/sandbar-porter"},
		{Package: "internal/test/hostile"},
	}
	if NpmConsole.Err() == nil {
		all = append(all, Command{Package: "cmd/sandbar", Tags: []string{"embedconsole"}, Script: "scripts/console.sh"})
	}
	return all
}

// name is the file name of the built command.
func (c Command) name() string {
	return strings.Join(append([]string{strings.ReplaceAll(c.Package, "/", "-")}, c.Tags...), "+")
}

// builds has one sync.OnceValues per name: a process builds each command once.
var builds sync.Map

// Build builds a command of this module statically, as "make build" does, and returns its
// path. The binary embeds the agent only with the tag embedagent. Build fails the test if the
// command does not compile. The file stays in Cache for later processes.
func Build(t testing.TB, pkg string, tags ...string) string {
	t.Helper()
	c, ok := known(Command{Package: pkg, Tags: tags}.name())
	if !ok {
		t.Fatalf("testenv: Build(%s) is not among Commands", Command{Package: pkg, Tags: tags}.name())
	}
	once, _ := builds.LoadOrStore(c.name(), sync.OnceValues(func() (string, error) { return c.Make(Cache()) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return path
}

func known(name string) (Command, bool) {
	for _, k := range Commands() {
		if k.name() == name {
			return k, true
		}
	}
	return Command{}, false
}

// Make builds the command into dir/bin-test and returns its path. If TESTENV_PREBUILT is set
// it builds nothing, and the file must exist.
func (c Command) Make(dir string) (string, error) {
	out := filepath.Join(dir, "bin-test", c.name())
	if os.Getenv("TESTENV_PREBUILT") != "" {
		return out, executable(out)
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	// Test processes of other packages may build the same command at the same time: each
	// builds into its own directory, and the last rename(2) wins.
	tmp, err := os.MkdirTemp(filepath.Dir(out), "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if c.Script != "" {
		cmd := exec.Command("sh", c.Script)
		cmd.Dir = root
		if msg, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", c.Script, err, msg)
		}
	}
	file := filepath.Join(tmp, c.name())
	cmd := exec.Command("go", "build", "-trimpath", "-tags", strings.Join(c.Tags, ","), "-o", file, "./"+c.Package)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w\n%s", c.Package, err, msg)
	}
	return out, os.Rename(file, out)
}
