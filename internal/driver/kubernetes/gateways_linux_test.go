package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// gateways are daemons that know each other, with sandboxes in one cluster.
type gateways struct {
	t       *testing.T
	options string
	urls    []string

	mu   sync.Mutex
	cmds []*exec.Cmd
}

func newGateways(t *testing.T, c *cluster.Cluster, n int, options ...string) *gateways {
	t.Helper()
	var pairs []string
	for k, v := range with(c, options...) {
		pairs = append(pairs, k+": "+strconv.Quote(v))
	}
	g := &gateways{t: t, options: "{kubernetes: {" + strings.Join(pairs, ", ") + "}}", cmds: make([]*exec.Cmd, n)}
	for i := range n {
		g.urls = append(g.urls, fmt.Sprintf("http://127.0.0.1:%d", 18080+i)) // the network is the cluster's own
	}
	t.Cleanup(func() {
		for i := range n {
			g.end(i, syscall.SIGKILL)
		}
	})
	return g
}

// start starts a daemon, with further variables.
func (g *gateways) start(i int, env ...string) {
	g.t.Helper()
	dir := g.t.TempDir()
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer logs.Close()
	cmd := exec.Command(testenv.Build(g.t, "cmd/sandbar"), "serve", "--listen", strings.TrimPrefix(g.urls[i], "http://"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SANDBAR_CONFIG=/dev/null", "SANDBAR_TOKEN=t0ken", "SANDBAR_DRIVER=" + Name, "SANDBAR_DRIVERS=" + g.options,
		"SANDBAR_PEERS_ADDRESSES=" + strings.Join(g.urls, ","), "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_TEMPLATES=off",
		"SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"), "SANDBAR_STATE_DIR=" + filepath.Join(dir, "state")}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = logs, logs
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.cmds[i] = cmd
	g.mu.Unlock()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get(g.urls[i] + "/health"); err == nil {
			r.Body.Close()
			return
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(logs.Name())
			g.t.Fatalf("the daemon does not answer; it said:\n%s", said)
		}
	}
}

// end ends a daemon with a signal and returns its exit status.
func (g *gateways) end(i int, sig syscall.Signal) error {
	g.mu.Lock()
	cmd := g.cmds[i]
	g.cmds[i] = nil
	g.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(sig); err != nil {
		return err
	}
	return cmd.Wait()
}

// ask sends a request to a daemon and decodes the answer. The error says what the daemon answered;
// unanswered: the connection failed.
func (g *gateways) ask(i int, method, path string, body, into any) (unanswered bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, method, g.urls[i]+path, bytes.NewReader(b))
	if err != nil {
		return false, err
	}
	r.Header.Set("Authorization", "Bearer t0ken")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return ctx.Err() == nil, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return ctx.Err() == nil, err
	}
	if got.StatusCode > 299 {
		return false, fmt.Errorf("%s: %s", got.Status, text)
	}
	if into == nil {
		return false, nil
	}
	return false, json.Unmarshal(text, into)
}

// user creates sandboxes, uses each through another daemon, and stops it through any, until stop is
// closed. A request may fail, because daemons are killed; then the answer says so at once. What a
// program prints must be its own.
func (g *gateways) user(stop <-chan struct{}, done *atomic.Int64) {
	one := func() int { return rand.IntN(len(g.urls)) }
	for {
		select {
		case <-stop:
			return
		default:
		}
		var box struct{ ID string }
		if _, err := g.ask(one(), "POST", "/v1/sandboxes", map[string]any{}, &box); err != nil {
			g.told("creating", err)
			continue
		}
		var ran struct {
			Stdout string
			Code   int
		}
		if _, err := g.ask(one(), "POST", "/v1/sandboxes/"+box.ID+"/executor/run", map[string]any{"cmd": "ls; echo " + box.ID + " | tee mine"}, &ran); err != nil {
			g.told("running", err)
		} else if ran.Code != 0 || ran.Stdout != box.ID+"\n" {
			g.t.Errorf("a program in a new sandbox: %+v", ran)
		} else {
			done.Add(1)
		}
		if _, err := g.ask(one(), "DELETE", "/v1/sandboxes/"+box.ID, nil, nil); err != nil {
			g.told("stopping", err)
		}
	}
}

// told checks the error of a request while daemons are killed.
func (g *gateways) told(what string, err error) {
	if strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		g.t.Errorf("%s: nobody answers: %v", what, err)
	}
	time.Sleep(50 * time.Millisecond)
}

// foreign returns the daemons' Leases beyond a number, and the pods of daemons without a Lease.
func foreign(ctx context.Context, a *api, daemons int) (left []string) {
	var all coordinationv1.LeaseList
	var list corev1.PodList
	if err := a.list(ctx, leases, labelGateway, &all); err != nil {
		return []string{err.Error()}
	}
	if err := a.list(ctx, pods, labelGateway, &list); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, l := range all.Items {
		names = append(names, l.Name)
	}
	if len(names) > daemons {
		left = append(left, names...)
	}
	for _, p := range list.Items {
		if !slices.Contains(names, p.Labels[labelGateway]) {
			left = append(left, p.Name)
		}
	}
	return left
}

// A sandbox is a pod that was ready before the request, with its connection open, and needs no call
// to the API server. Used ones are replaced.
func TestReadyPods(t *testing.T) {
	c := need(t)
	for name, class := range map[string]string{"runc": "", "gVisor": cluster.GVisor} {
		t.Run(name, func(t *testing.T) { readyPods(t, c, class) })
	}
}

// readyPods is TestReadyPods for one runtime class.
func readyPods(t *testing.T, c *cluster.Cluster, class string) {
	a, err := openAPI(options{kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	proxy, err := c.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	g := newGateways(t, c, 1, optionRuntimeClass, class, optionKubeconfig, proxy.Kubeconfig())
	const ready = 4
	g.start(0, "SANDBAR_TEMPLATES=[{min: "+strconv.Itoa(ready)+", max: "+strconv.Itoa(ready)+"}]")
	// One more, which the daemon makes at its start to find the interpreters, is awaited too: its
	// removal is a call.
	await := func() (ids []string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			var list corev1.PodList
			if err := a.list(t.Context(), pods, labelSandbox, &list); err != nil {
				t.Fatal(err)
			}
			ids = nil
			for _, p := range list.Items {
				if len(p.Status.ContainerStatuses) == 2 && p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[1].Ready && p.DeletionTimestamp == nil {
					ids = append(ids, p.Labels[labelSandbox])
				}
			}
			if len(ids) == ready && len(list.Items) == ready {
				return ids
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d pods are ready, want %d", len(ids), len(list.Items), ready)
			}
		}
	}
	const uses = 3
	await()
	proxy.Calls()
	for range uses {
		before := await()
		began := time.Now()
		var box struct{ ID string }
		if _, err := g.ask(0, "POST", "/v1/sandboxes", map[string]any{}, &box); err != nil {
			t.Fatal(err)
		}
		made := time.Now()
		var ran struct{ Stdout string }
		if _, err := g.ask(0, "POST", "/v1/sandboxes/"+box.ID+"/executor/run", map[string]any{"cmd": "echo up"}, &ran); err != nil || ran.Stdout != "up\n" {
			t.Errorf("%+v, %v", ran, err)
		}
		t.Logf("a sandbox after %v, its first program after %v", made.Sub(began), time.Since(began))
		if !slices.Contains(before, box.ID) {
			t.Errorf("the pod of %s was not among those that were ready: %v", box.ID, before)
		}
		if _, err := g.ask(0, "DELETE", "/v1/sandboxes/"+box.ID, nil, nil); err != nil {
			t.Error(err)
		}
	}
	await()
	// Each use removes its pod and makes another. Nothing else is written, by a claim or an execution.
	writes := proxy.Calls()
	maps.DeleteFunc(writes, func(call string, _ int) bool {
		return strings.HasPrefix(call, "GET ") || strings.HasSuffix(call, " leases")
	})
	if want := map[string]int{"POST pods": uses, "DELETE pods": uses}; !maps.Equal(writes, want) {
		t.Errorf("calls of the API server: %v, want %v", writes, want)
	}
	if err := g.end(0, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// Three daemons with sandboxes in one cluster answer as one while they are killed one after the
// other: every caller is told, and after each kill nothing of the dead daemon remains. KILLS is the
// number of kills.
func TestGateways(t *testing.T) {
	c := need(t)
	kills, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil {
		kills = 2
	}
	objects := traces(t, c)
	before := objects()
	a, err := openAPI(options{kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	g := newGateways(t, c, 3)
	for i := range g.urls {
		g.start(i)
	}
	stop := make(chan struct{})
	var done atomic.Int64
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() { g.user(stop, &done) })
	}
	for range kills {
		if t.Failed() {
			break
		}
		for until, end := done.Load()+3, time.Now().Add(2*time.Minute); done.Load() < until; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no program has run for two minutes")
			}
		}
		victim := rand.IntN(len(g.urls))
		g.end(victim, syscall.SIGKILL)
		var left []string
		for end := time.Now().Add(leaseDuration + time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if left = foreign(t.Context(), a, len(g.urls)-1); len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("of the killed daemon this remains: %v", left)
			}
		}
		g.start(victim)
	}
	close(stop)
	users.Wait()
	t.Logf("%d programs ran while %d daemons were killed", done.Load(), kills)
	for i := range g.urls {
		if err := g.end(i, syscall.SIGTERM); err != nil {
			t.Errorf("a daemon ended with %v", err)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left := slices.DeleteFunc(objects(), func(name string) bool { return slices.Contains(before, name) })
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("this remains: %v", left)
		}
	}
}
