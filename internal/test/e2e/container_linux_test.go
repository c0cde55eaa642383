package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// containers is a Docker Engine with the image of packaging/docker/Dockerfile, and the docker
// client of the documents' examples.
type containers struct {
	t    *testing.T
	root string // of the module
	env  []string
}

// newContainers builds the image with the tests' build of the command. The test engine has no
// network, so containers use the host's.
func newContainers(t *testing.T) *containers {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.Docker, testenv.DockerCLI, testenv.DebianImage)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	c := &containers{t: t, root: root, env: append(environ(), "DOCKER_HOST="+engines.Engine(t).Host(), "DOCKER_BUILDKIT=0", "DOCKER_CONFIG="+t.TempDir())}
	t.Cleanup(func() { // the volumes of the compose file
		cmd := exec.Command("docker", "volume", "rm", "-f", "state", "cache")
		cmd.Env = c.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	dir := t.TempDir()
	for _, sub := range []string{"bin", "packaging/docker"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, testenv.Build(t, "cmd/sandbar"), filepath.Join(dir, "bin", "sandbar"), 0o755)
	copyFile(t, filepath.Join(root, "packaging/docker/Dockerfile"), filepath.Join(dir, "packaging/docker/Dockerfile"), 0o644)
	build := strings.Replace(shellBlock(t, root, "docker build"), "make build\n", "", 1)
	c.sh(dir, strings.Replace(build, "docker build ", "docker build -q --network none --build-arg BASE="+dockerd.Image+" ", 1))
	return c
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		t.Fatal(err)
	}
}

// shellBlock returns the example of docs/deploy.md that contains a command.
func shellBlock(t *testing.T, root, command string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		if strings.Contains(m[1], command) {
			return m[1]
		}
	}
	t.Fatalf("docs/deploy.md has no example of %q", command)
	return ""
}

// sh runs a shell script, which must succeed, and returns its output.
func (c *containers) sh(dir, script string, env ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(within(c.t, 5*time.Minute), "sh", "-c", script)
	cmd.Dir, cmd.Env = dir, append(c.env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// doctor returns the output of "sandbar doctor" in a container with the given flags.
func (c *containers) doctor(flags ...string) (string, error) {
	args := append(append([]string{"run", "--rm", "--network", "none"}, flags...), "sandbar", "doctor")
	cmd := exec.CommandContext(within(c.t, 5*time.Minute), "docker", args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Native sandboxes work in a container with the documented privileges. Without one of them,
// "sandbar doctor" names the missing one.
func TestContainerRights(t *testing.T) {
	c := newContainers(t)
	flags := strings.Fields(strings.ReplaceAll(shellBlock(t, c.root, "--name sandbar "), "\\\n", ""))
	first, last := 0, 0
	for i, f := range flags {
		switch f {
		case "--read-only":
			first = i
		case "sandbar":
			last = i
		}
	}
	rights := flags[first:last]
	if out, err := c.doctor(rights...); err != nil || !strings.Contains(out, "driver native created a sandbox, ran a program in it") {
		t.Errorf("with %q: %v:\n%s", rights, err, out)
	}
	for without, says := range map[string]string{"seccomp=unconfined": "start the agent: operation not permitted", "systempaths=unconfined": "mount proc on /proc: operation not permitted"} {
		var fewer []string
		for i := 0; i < len(rights); i++ {
			if rights[i] == "--security-opt" && rights[i+1] == without {
				i++
				continue
			}
			fewer = append(fewer, rights[i])
		}
		if out, err := c.doctor(fewer...); err == nil || !strings.Contains(out, says) || !strings.Contains(out, "--security-opt "+without) {
			t.Errorf("without %s: %v:\n%s", without, err, out)
		}
	}
}

// waitFor polls a server until it answers with status 200.
func (c *containers) waitFor(name, url string) {
	c.t.Helper()
	waitUntil(c.t, name+" answers", func() []string {
		r, err := http.Get(url)
		if err != nil {
			return []string{err.Error(), c.sh("/", "docker logs "+name+" 2>&1")}
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return []string{r.Status}
		}
		return nil
	})
}

// end stops a container by "docker stop" and expects a clean exit.
func (c *containers) end(name string) {
	c.t.Helper()
	if code := c.sh("/", "docker stop "+name+" >/dev/null && docker inspect -f '{{.State.ExitCode}}' "+name); code != "0" {
		c.t.Errorf("%s: exit code %s:\n%s", name, code, c.sh("/", "docker logs "+name+" 2>&1"))
	}
	c.sh("/", "docker rm -v "+name)
}

// The daemon runs with the documented command, and with the compose file.
func TestDaemonInContainer(t *testing.T) {
	c := newContainers(t)
	for how, script := range map[string]string{"run": shellBlock(t, c.root, "--name sandbar "), "compose": c.composed("daemon", "sandbar")} {
		t.Run(how, func(t *testing.T) {
			addr := testenv.FreeAddress(t)
			script := strings.Replace(script, "-p 127.0.0.1:8080:8080", "--network host -e SANDBAR_LISTEN="+addr, 1)
			c.sh("/", script, "SANDBAR_TOKEN="+token)
			t.Cleanup(func() { c.sh("/", "docker rm -f -v sandbar 2>/dev/null || true") })
			c.waitFor("sandbar", "http://"+addr+"/health")
			d := &daemon{addr: addr}
			d.runClients(t, []string{"python", "shell"}, testenv.PyWebsockets)
			c.end("sandbar")
		})
	}
}

// The executor runs with the documented command, and with the compose file.
func TestExecutorInContainer(t *testing.T) {
	c := newContainers(t)
	const secret = "a-secret-of-a-container"
	for how, script := range map[string]string{"run": shellBlock(t, c.root, "--name executor "), "compose": c.composed("executor", "executor")} {
		t.Run(how, func(t *testing.T) {
			addr, proxy := testenv.FreeAddress(t), testenv.FreeAddress(t)
			_, port, _ := strings.Cut(addr, ":")
			_, proxyPort, _ := strings.Cut(proxy, ":")
			script := strings.Replace(script, "-p 127.0.0.1:3030:3030", "--network host -e PORT="+port+" -e PROXY_PORT="+proxyPort, 1)
			c.sh("/", strings.Replace(script, "-p 127.0.0.1:3031:3031", "", 1), "SANDBOX_SECRET="+secret)
			t.Cleanup(func() { c.sh("/", "docker rm -f -v executor 2>/dev/null || true") })
			c.waitFor("executor", "http://"+addr+"/health")
			r, err := http.NewRequest("POST", "http://"+addr+"/run", strings.NewReader(`{"cmd":"python3 -c 'print(6*7)'; id -u"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+secret)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), `"stdout":"42\n`) {
				t.Errorf("status %s: %s", resp.Status, b)
			}
			c.end("executor")
		})
	}
}

// composeService has the settings of a service in the compose file.
type composeService struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	ReadOnly    bool              `yaml:"read_only"`
	Tmpfs       []string          `yaml:"tmpfs"`
	Grace       string            `yaml:"stop_grace_period"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Build       any               `yaml:"build"`
}

// composed returns the arguments of "docker run" that are equivalent to a service of the compose
// file. A setting that composeService lacks is an error.
func (c *containers) composed(name, container string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.root, "packaging", "docker", "compose.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	var file struct {
		Sandbar  any                       `yaml:"x-sandbar"`
		Services map[string]composeService `yaml:"services"`
		Volumes  map[string]any            `yaml:"volumes"`
	}
	if err := yaml.Load(b, &file, yaml.WithKnownFields()); err != nil {
		c.t.Fatal(err)
	}
	s, ok := file.Services[name]
	if !ok || s.Image == "" {
		c.t.Fatalf("no service %s in %+v", name, file)
	}
	args := []string{"docker", "run", "-d", "--name", container}
	add := func(flag string, values ...string) {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	add("--cap-drop", s.CapDrop...)
	add("--security-opt", s.SecurityOpt...)
	add("--tmpfs", s.Tmpfs...)
	add("-p", s.Ports...)
	add("-v", s.Volumes...)
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	for k, v := range s.Environment {
		if v, ok := strings.CutPrefix(v, "${"+k); !ok || !strings.HasPrefix(v, ":?") {
			c.t.Errorf("%s is %q", k, v)
		}
		add("-e", k)
	}
	for _, v := range s.Volumes {
		if volume, _, _ := strings.Cut(v, ":"); file.Volumes != nil {
			if _, ok := file.Volumes[volume]; !ok {
				c.t.Errorf("there is no volume %s", volume)
			}
		}
	}
	return fmt.Sprint(strings.Join(append(append(args, s.Image), s.Command...), " "))
}
