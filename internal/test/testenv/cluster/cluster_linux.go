package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// startBound bounds the start of a cluster, stopBound the end of its processes after SIGKILL.
const (
	startBound = 3 * time.Minute
	stopBound  = time.Minute
)

//go:embed cluster.sh
var clusterScript []byte

//go:embed node.sh
var nodeScript []byte

// Cluster is a running Kubernetes. Its methods must not be called concurrently.
type Cluster struct {
	dir   string
	nodes int
	cmd   *exec.Cmd     // the first process of the PID namespace; nil in a test binary of Main
	ended chan struct{} // closed when cmd has been waited for
}

// Start starts a cluster with one or two nodes and returns when they are ready. ctx bounds the
// start.
func Start(ctx context.Context, nodes int) (started *Cluster, err error) {
	if nodes != 1 && nodes != 2 {
		return nil, fmt.Errorf("a cluster has one or two nodes, not %d", nodes)
	}
	if err := sweep(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", Prefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, nodes: nodes}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	if err := c.awaitReady(ctx); err != nil {
		return nil, err
	}
	return c, c.Isolate(true)
}

// sweep removes the clusters of processes that were killed. The kernel has ended their processes.
func sweep() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), Prefix+"*"))
	for _, dir := range dirs {
		name, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), Prefix), "-")
		pid, perr := strconv.Atoi(name)
		if ok && perr == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			err = errors.Join(err, (&Cluster{dir: dir}).Stop())
		}
	}
	return err
}

func (c *Cluster) path(name ...string) string {
	return filepath.Join(append([]string{c.dir}, name...)...)
}

// group is the name of the cgroups of a node's pods.
func (c *Cluster) group(n string) string { return filepath.Base(c.dir) + "-" + n }

// program returns the path of a program of the cluster.
func program(name string) string { return filepath.Join(testenv.ClusterDir(), "bin", name) }

// Kubeconfig returns the path of an administrator's kubeconfig. It works inside the cluster's
// network namespace.
func (c *Cluster) Kubeconfig() string { return c.path("pki", "admin.kubeconfig") }

// Dir returns the directory of the cluster's state.
func (c *Cluster) Dir() string { return c.dir }

// Namespace returns the path of the cluster's network namespace.
func (c *Cluster) Namespace() string { return fmt.Sprintf("/proc/%d/ns/net", c.cmd.Process.Pid) }

// prepare writes the files of the cluster and makes its cgroups.
func (c *Cluster) prepare() error {
	for _, d := range []string{"pki", "log"} {
		if err := os.Mkdir(c.path(d), 0o755); err != nil {
			return err
		}
	}
	if err := writePKI(c.path("pki"), c.nodes); err != nil {
		return err
	}
	pause, err := os.ReadFile(program("pause"))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.path("cluster.sh"), clusterScript, 0o600),
		os.WriteFile(c.path("node.sh"), nodeScript, 0o600),
		WriteImage(c.path("pause.tar"), "sandbar.test/pause:1", "65534:65534", []string{"/pause"}, File{"/pause", 0o755, pause}),
		c.makeGroups())
}

// makeGroups makes a cgroup for each node in every version 1 hierarchy. A new cpuset is empty, and
// no process can enter an empty one.
func (c *Cluster) makeGroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	for _, procs := range roots {
		root := filepath.Dir(procs)
		for n := range c.nodes {
			dir := filepath.Join(root, c.group(strconv.Itoa(n+1)))
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				b, err := os.ReadFile(filepath.Join(root, f))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, f), b, 0o644)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// start starts the first process. The kernel kills it when this process dies.
func (c *Cluster) start() error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	log, err := os.Create(c.path("log", "cluster"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", c.path("cluster.sh"), c.dir, filepath.Join(testenv.ClusterDir(), "bin"), strconv.Itoa(c.nodes), c.group(""), runc)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=/tmp"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the process when the thread that started it exits, so this goroutine keeps
		// its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log has the reason
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	c.cmd, c.ended = cmd, ended
	return nil
}

// awaitReady waits until every node is ready, and pods can be created in the namespace default.
func (c *Cluster) awaitReady(ctx context.Context) error {
	for {
		out, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if err == nil && strings.Count(string(out), "True") == c.nodes {
			if _, err = c.Kubectl(ctx, "get", "serviceaccount", "default"); err == nil {
				return nil
			}
		}
		select {
		case <-c.ended:
			return fmt.Errorf("the cluster has ended: %s", c.logs())
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready: %w: %s, %w: %s", ctx.Err(), out, err, c.logs())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// logs returns the ends of the logs of all components.
func (c *Cluster) logs() string {
	var b strings.Builder
	names, _ := filepath.Glob(c.path("log", "*"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "\n%s: %s", filepath.Base(name), text[max(0, len(text)-600):])
	}
	return b.String()
}

// At returns the cluster in a directory that another process has started. This process must be in
// the cluster's network namespace; see Command.
func At(dir string, nodes int) *Cluster { return &Cluster{dir: filepath.Clean(dir), nodes: nodes} }

// Command returns a command in the cluster's network namespace. This process is in it already if
// Main has started the cluster.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	if c.cmd == nil {
		return exec.CommandContext(ctx, args[0], args[1:]...)
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + c.Namespace(), "--"}, args...)...)
}

// Kubectl runs kubectl as an administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return c.output(c.Command(ctx, append([]string{program("kubernetes"), "kubectl", "--kubeconfig", c.Kubeconfig()}, args...)...))
}

// Apply creates the objects of a manifest, or changes existing ones.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	return c.manifest(ctx, manifest, "apply")
}

// Delete deletes the objects of a manifest.
func (c *Cluster) Delete(ctx context.Context, manifest string) error {
	return c.manifest(ctx, manifest, "delete")
}

func (c *Cluster) manifest(ctx context.Context, manifest, verb string) error {
	cmd := c.Command(ctx, program("kubernetes"), "kubectl", "--kubeconfig", c.Kubeconfig(), verb, "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := c.output(cmd)
	return err
}

// Load imports the archive of an image, in the format of "docker save", on every node.
func (c *Cluster) Load(ctx context.Context, archive string) error {
	for n := range c.nodes {
		cmd := exec.CommandContext(ctx, program("ctr"), "-a", c.path(nodeName(n), "containerd", "grpc.sock"), "-n", "k8s.io", "image", "import", "--local", archive)
		if _, err := c.output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// OnNode runs a shell script in the namespaces of node n, from 1 on, and returns its output.
func (c *Cluster) OnNode(n int, script string) (string, error) {
	dir := nodeName(n - 1)
	if err := os.WriteFile(c.path(dir, "in"), []byte(script), 0o600); err != nil {
		return "", err
	}
	out, err := os.ReadFile(c.path(dir, "out"))
	return string(out), err
}

// isolation are the rules of Isolate. %[1]d is the node's number.
const isolation = `set -e
iptables -N sandbar 2>/dev/null || iptables -F sandbar
iptables -C FORWARD -j sandbar 2>/dev/null || iptables -A FORWARD -j sandbar
iptables -C INPUT -j sandbar 2>/dev/null || iptables -A INPUT -j sandbar
[ "%[2]t" = true ] || exit 0
iptables -A sandbar -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
iptables -A sandbar -s ` + APIServer + ` -d 10.97.%[1]d.0/24 -p tcp --dport 7473 -j ACCEPT
iptables -A sandbar -s 10.97.%[1]d.0/24 -j DROP
iptables -A sandbar -d 10.97.%[1]d.0/24 -j DROP
`

// Isolate makes the nodes deny what the NetworkPolicy objects of Sandbar's pods deny, or not. The
// cluster's own network ignores the objects: the plugins that obey them cannot be built from Go
// modules alone. Start calls it with true.
func (c *Cluster) Isolate(on bool) error {
	for n := range c.nodes {
		out, err := c.OnNode(n+1, fmt.Sprintf(isolation, n+1, on))
		if err == nil && out != "" {
			err = fmt.Errorf("iptables: %s", out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // kubectl has a cache there
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// Stop kills all processes of the cluster and removes its cgroups and files.
func (c *Cluster) Stop() error {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill() // it may have ended
		select {
		case <-c.ended:
		case <-time.After(stopBound):
			return errors.New("the cluster does not end")
		}
		// The kernel ends the other processes of the PID namespace before the first one can be waited
		// for.
		c.cmd = nil
	}
	return errors.Join(c.removeGroups(), os.RemoveAll(c.dir))
}

// removeGroups removes the cluster's cgroups, children first. The kernel frees one a moment after
// its last process has ended.
func (c *Cluster) removeGroups() error {
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		if strings.Contains(path+"/", "/"+c.group("")) {
			groups = append(groups, path)
		}
		return nil
	})
	slices.Reverse(groups)
	for _, g := range groups {
		end := time.Now().Add(stopBound)
		for {
			rerr := syscall.Rmdir(g)
			if rerr == nil || rerr == syscall.ENOENT {
				break
			}
			if rerr != syscall.EBUSY || time.Now().After(end) {
				err = errors.Join(err, fmt.Errorf("rmdir %s: %w", g, rerr))
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return err
}
