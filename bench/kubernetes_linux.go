package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// pods are the sandboxes of a benchmark: those of a driver that makes pods, whose calls to the API
// server are counted.
type pods struct {
	cluster *cluster.Cluster
	proxy   *cluster.Proxy
	engine  *engine.Engine
}

// podRows are the benchmarks that run inside the network of a cluster, by name.
func podRows() map[string]func(*cluster.Cluster) (measured, error) {
	gvisor := cluster.GVisor
	return map[string]func(*cluster.Cluster) (measured, error){
		"kubernetes-ready":        withPods("", 1, func(p *pods) (measured, error) { return p.claims(25 * time.Millisecond) }),
		"kubernetes-ready-gvisor": withPods(gvisor, 1, func(p *pods) (measured, error) { return p.claims(60 * time.Millisecond) }),
		"kubernetes-true":         withPods("", 0, (*pods).open),
		"kubernetes-true-gvisor":  withPods(gvisor, 0, (*pods).open),
		"kubernetes-burst":        withPods("", podBurst, (*pods).burst),
	}
}

// podBurst is the number of claims at once.
const podBurst = 100

// onPods runs a benchmark in a process inside the cluster's network.
func onPods(name string) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		c, err := l.kubernetes()
		if err != nil {
			return measured{}, err
		}
		self, err := os.Executable()
		if err != nil {
			return measured{}, err
		}
		cmd := c.Command(context.Background(), self, "-pods", name, "-cluster", c.Dir())
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return measured{}, err
		}
		var m podResult
		if err := json.Unmarshal(out, &m); err != nil {
			return measured{}, err
		}
		return measured{value: m.Value, baseline: m.Baseline, kept: m.Kept}, nil
	}
}

// podResult is a measured as JSON.
type podResult struct {
	Value, Baseline string
	Kept            bool
}

// runPods is the process of onPods.
func runPods(name, dir string) int {
	m, err := podRows()[name](cluster.At(dir, 1))
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(podResult{m.value, m.baseline, m.kept})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// kubernetes returns a cluster with one node and the images of sandboxes. All benchmarks share it.
func (l *lab) kubernetes() (*cluster.Cluster, error) {
	if l.cluster != nil {
		return l.cluster, nil
	}
	for _, r := range []testenv.Requirement{testenv.Cluster, testenv.DebianImage} {
		if err := r.Err(); err != nil {
			return nil, err
		}
	}
	c, err := cluster.Start(context.Background(), 1)
	if err != nil {
		return nil, err
	}
	if err := cluster.LoadSandboxes(context.Background(), c); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	l.cluster = c
	return c, nil
}

// withPods calls measure with an engine that keeps pods of a runtime class ready.
func withPods(class string, ready int, measure func(*pods) (measured, error)) func(*cluster.Cluster) (measured, error) {
	return func(c *cluster.Cluster) (m measured, err error) {
		p := &pods{cluster: c}
		if p.proxy, err = c.NewProxy(); err != nil {
			return m, err
		}
		defer p.proxy.Close()
		d, err := kubernetes.New(driver.Host{Options: map[string]string{"kubeconfig": p.proxy.Kubeconfig(), "image": cluster.SandboxImage,
			"agent_image": cluster.AgentImage, "pull": "never", "runtime_class": class}})
		if err != nil {
			return m, err
		}
		o := engine.Config{Driver: d, AllowDegraded: true, MaxSandboxes: 2 * podBurst}
		if ready > 0 {
			o.Templates = []engine.Template{{Spec: sandbar.Spec{Limits: podSpec().Limits}, Min: ready, Max: ready}}
		}
		if p.engine, err = engine.New(o); err != nil {
			return m, errors.Join(err, d.Close())
		}
		defer func() {
			// A kubelet ends 100 pods in a longer time than a shutdown waits. The cluster removes
			// them with the daemon's Lease.
			if closing := closeEngine(p.engine); ready < podBurst {
				err = errors.Join(err, closing)
			}
		}()
		return measure(p)
	}
}

// podSpec has small limits, so that 100 pods fit.
func podSpec() sandbar.Spec {
	s := spec()
	s.Limits.Memory, s.Limits.CPUs, s.Limits.Disk = 64<<20, 1, 16<<20
	return s
}

// awaitReady waits until n pods are ready.
func (p *pods) awaitReady(n int) error {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if p.engine.Templates()[0].Ready >= n {
			return nil
		}
	}
	return fmt.Errorf("%d pods did not become ready: %+v", n, p.engine.Templates()[0])
}

// claim takes a sandbox and runs `true` in it.
func (p *pods) claim() (*engine.Sandbox, error) {
	box, err := p.engine.Create(context.Background(), podSpec())
	if err != nil {
		return nil, err
	}
	return box, podTrue(box)
}

func podTrue(box *engine.Sandbox) error {
	return exited(box.Exec(context.Background(), sandbar.Cmd{Args: []string{"true"}}, nil, sandbar.Limits{}, engine.Discard))
}

// claims measures claims of ready pods, each to the end of `true`, beside the two ways of
// Kubernetes to run `true` in a pod that runs.
func (p *pods) claims(most time.Duration) (measured, error) {
	baseline, err := p.newBaseline()
	if err != nil {
		return measured{}, err
	}
	defer baseline.close()
	var ours times
	calls := map[string]int{}
	for range 20 {
		if err := p.awaitReady(1); err != nil {
			return measured{}, err
		}
		p.proxy.Calls() // those of the pod's creation
		began := time.Now()
		box, err := p.claim()
		if err != nil {
			return measured{}, err
		}
		ours = append(ours, time.Since(began))
		for k, n := range p.proxy.Calls() {
			calls[k] += n
		}
		if err := p.engine.Stop(context.Background(), box.ID()); err != nil {
			return measured{}, err
		}
	}
	theirs, err := baseline.measure(20)
	if err != nil {
		return measured{}, err
	}
	sortTimes(ours)
	return measured{value: fmt.Sprintf("%v; %d were not ready; calls of the API by 20 claims: %s", ours, p.engine.Templates()[0].Misses, callsText(calls)),
		baseline: theirs, kept: ours.quantile(0.5) <= most}, nil
}

// open measures `true` in a sandbox, and counts the calls of its creation, its executions and its
// end.
func (p *pods) open() (measured, error) {
	p.proxy.Calls()
	box, err := p.claim()
	if err != nil {
		return measured{}, err
	}
	creation := callsText(p.proxy.Calls())
	ours, err := sample(200, func() error { return podTrue(box) })
	if err != nil {
		return measured{}, err
	}
	executions := callsText(p.proxy.Calls())
	baseline, err := p.newBaseline()
	if err != nil {
		return measured{}, err
	}
	defer baseline.close()
	theirs, err := baseline.measure(20)
	if err != nil {
		return measured{}, err
	}
	p.proxy.Calls()
	if err := p.engine.Stop(context.Background(), box.ID()); err != nil {
		return measured{}, err
	}
	sortTimes(ours)
	return measured{value: fmt.Sprintf("%v; calls of the API: a creation %s, 200 executions %s, a destruction %s", ours, creation, executions, callsText(p.proxy.Calls())),
		baseline: theirs, kept: ours.quantile(0.5) <= 4*time.Millisecond}, nil
}

// burst measures many claims at once, each to the end of `true`.
func (p *pods) burst() (measured, error) {
	if err := p.awaitReady(podBurst); err != nil {
		return measured{}, err
	}
	p.proxy.Calls()
	var all sync.WaitGroup
	errs := make([]error, podBurst)
	took := make(times, podBurst)
	began := time.Now()
	for i := range podBurst {
		all.Go(func() {
			_, errs[i] = p.claim()
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	total := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return measured{}, err
	}
	sortTimes(took)
	return measured{value: fmt.Sprintf("all after %v; %v; %d were not ready", total.Round(time.Millisecond), took, p.engine.Templates()[0].Misses), kept: total <= time.Second}, nil
}

// callsText returns counts of calls, without those of the daemon's Lease.
func callsText(calls map[string]int) string {
	var list []string
	for k, n := range calls {
		if !strings.HasSuffix(k, " leases") {
			list = append(list, fmt.Sprintf("%d %s", n, k))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// baseline is a pod in which Kubernetes itself runs `true`.
type podBaseline struct {
	*pods
	name   string
	client *http.Client
}

// newBaseline makes the pod: a plain one, with the image of sandboxes.
func (p *pods) newBaseline() (*podBaseline, error) {
	b := &podBaseline{pods: p, name: "baseline"}
	ctx := context.Background()
	manifest := `{apiVersion: v1, kind: Pod, metadata: {name: ` + b.name + `}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: "` + cluster.SandboxImage + `", imagePullPolicy: Never, command: [sleep, "3600"]}]}}`
	if err := p.cluster.Apply(ctx, manifest); err != nil {
		return nil, err
	}
	if _, err := p.cluster.Kubectl(ctx, "wait", "pod/"+b.name, "--for=condition=Ready", "--timeout=60s"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	pki := filepath.Join(p.cluster.Dir(), "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	authority, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	b.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}}
	return b, nil
}

func (b *podBaseline) close() error {
	_, err := b.cluster.Kubectl(context.Background(), "delete", "pod", b.name)
	return err
}

// measure returns the times of kubectl exec and of the exec subresource.
func (b *podBaseline) measure(n int) (string, error) {
	byKubectl, bySubresource, err := interleave(n, func() error {
		_, err := b.cluster.Kubectl(context.Background(), "exec", b.name, "--", "true")
		return err
	}, b.exec)
	if err != nil {
		return "", err
	}
	return "`true` in a running pod of runc: kubectl exec " + byKubectl.String() + ", the exec subresource " + bySubresource.String(), nil
}

// exec runs `true` by the exec subresource.
func (b *podBaseline) exec() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "wss://"+cluster.APIServer+":6443/api/v1/namespaces/default/pods/"+b.name+"/exec?command=true&stdout=true",
		&websocket.DialOptions{HTTPClient: b.client, Subprotocols: []string{"v5.channel.k8s.io"}})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	success := false
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			if success && (websocket.CloseStatus(err) == websocket.StatusNormalClosure || errors.Is(err, io.EOF)) {
				return nil
			}
			return fmt.Errorf("the exec subresource: %w", err)
		}
		const status = 3 // the channel of the result
		success = success || len(message) > 0 && message[0] == status && strings.Contains(string(message), `"Success"`)
	}
}
