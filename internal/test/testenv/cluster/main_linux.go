package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// envDir and envNodes tell a test binary that Main has started the directory and the number of
// nodes of its cluster.
const (
	envDir   = "TESTENV_CLUSTER_DIR"
	envNodes = "TESTENV_CLUSTER_NODES"
)

// Main is for TestMain: it starts a cluster, lets prepare load images into it, and runs the test
// binary again inside the cluster's network namespace, where tests reach its API server and its
// pods. It returns the exit code. If this host cannot run a cluster it only runs the tests, which
// skip those that need one.
func Main(m *testing.M, nodes int, prepare func(context.Context, *Cluster) error) int {
	if os.Getenv(envDir) != "" || !testenv.Cluster.Met() || listing() {
		return m.Run()
	}
	ctx := context.Background() // Start is bounded, and so is the test binary
	c, err := Start(ctx, nodes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "a cluster for tests:", err)
		return 1
	}
	code := 1
	if err := prepare(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "preparing a cluster for tests:", err)
	} else {
		code = c.run()
	}
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the cluster could not be stopped:", err)
		return 1
	}
	return code
}

// listing reports whether the test binary only lists its tests.
func listing() bool {
	for _, a := range os.Args[1:] {
		if len(a) > 10 && a[:11] == "-test.list=" {
			return true
		}
	}
	return false
}

// run runs the test binary inside the cluster's network namespace and returns its exit code.
func (c *Cluster) run() int {
	code, err := c.again(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// again runs the test binary with other arguments inside the cluster's network namespace and
// returns its exit code, which is 1 for one that did not end by itself.
func (c *Cluster) again(args []string, out, errs io.Writer) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("nsenter", append([]string{"--net=" + c.Namespace(), "--", self}, args...)...)
	cmd.Env = append(os.Environ(), envDir+"="+c.dir, envNodes+"="+strconv.Itoa(c.nodes))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel kills the tests when this thread exits
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 1, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil
}

// Inside is for a single test of a binary whose TestMain does not call Main: it starts a cluster,
// lets prepare load images into it, and runs the test again in a process inside the cluster's
// network namespace. It returns true in that process, where the test must do its work, and false in
// the first one, after the work. It skips the test if this host cannot run a cluster.
func Inside(t *testing.T, nodes int, prepare func(context.Context, *Cluster) error) bool {
	t.Helper()
	testenv.Need(t, testenv.Cluster)
	if os.Getenv(envDir) != "" {
		return true
	}
	c, err := Start(t.Context(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run=^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"}
	for _, a := range os.Args[1:] {
		if strings.HasPrefix(a, "-test.timeout=") || strings.HasPrefix(a, "-test.short") {
			args = append(args, a)
		}
	}
	var out bytes.Buffer
	code, err := c.again(args, &out, &out)
	if err != nil || code != 0 || !strings.Contains(out.String(), "--- PASS: "+t.Name()+" ") {
		t.Errorf("inside the cluster: exit code %d, %v\n%s", code, err, out.String())
	}
	return false
}

// Of returns the cluster that Main has started for this test binary. It skips the test if this host
// cannot run a cluster.
func Of(t testing.TB) *Cluster {
	t.Helper()
	testenv.Need(t, testenv.Cluster)
	dir := os.Getenv(envDir)
	nodes, err := strconv.Atoi(os.Getenv(envNodes))
	if dir == "" || err != nil {
		t.Fatal("TestMain does not call cluster.Main")
	}
	return At(dir, nodes)
}
