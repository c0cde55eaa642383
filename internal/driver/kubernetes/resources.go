package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
)

const (
	// createBound bounds the creation of a sandbox.
	createBound = 2 * time.Minute
	// dialBound bounds one attempt to connect to a porter, dialPause is the time between two.
	dialBound = 5 * time.Second
	dialPause = 10 * time.Millisecond
	// reachBound bounds the attempts to connect to the address of the first pod, if there is another
	// way to reach it.
	reachBound = 10 * time.Second
)

// resources has the parts of one sandbox. Its fields are set as the parts are created.
type resources struct {
	d    *Driver
	id   sandbar.ID
	name string // of the pod
	node string // that the pod must be on; "": any
	log  *slog.Logger

	leave context.CancelFunc // ends explain; the daemon removes the pod
	left  context.Context    // ends with leave

	asked bool      // the pod may exist
	uid   types.UID // of the pod; "" if unknown
	ended bool      // the API server has accepted the pod's deletion
	conn  net.Conn
	usage usageReader
}

func (d *Driver) newResources(id sandbar.ID) *resources {
	b := &resources{d: d, id: id, name: podName(string(id)), log: d.log}
	b.left, b.leave = context.WithCancel(context.Background())
	return b
}

// create creates the sandbox. On an error the caller must call undo.
func (b *resources) create(ctx context.Context, s sandbar.Spec) (*client.Sandbox, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, createBound)
	defer cancel()
	user := newUID()
	setup, err := b.d.setup(s, user)
	if err != nil {
		return nil, err
	}
	var made corev1.Pod
	b.asked = true
	p := b.d.pod(b.name, b.id, s, user)
	p.Spec.NodeName = b.node
	if err := b.d.api.create(ctx, pods, p, &made); err != nil {
		return nil, err
	}
	b.uid = made.UID
	if err := unchanged(p, &made); err != nil {
		return nil, err
	}
	ip, err := b.d.awaitPorter(ctx, b.name, b.uid)
	if err == nil {
		b.conn, err = b.d.dial(ctx, ip, b.name, b.uid)
	}
	if err != nil {
		return nil, createError(caller, err)
	}
	o := client.Options{Destroy: b.destroy, Explain: b.explain, Enforced: b.d.caps.Enforced}
	if !b.d.guest {
		o.Usage = b.usage.read
	} else if b.d.caps.Enforced.CPUs != sandbar.EnforcedNone { // gVisor's kernel shows no counters of a cgroup
		o.CPUs = max(s.Limits.CPUs, 0)
	}
	sb, err := client.New(ctx, b.conn, o)
	if err != nil {
		return nil, b.agentError(caller, err)
	}
	b.usage.open(sb)
	if _, _, err = sb.Setup(ctx, setup); err != nil {
		b.leave()
		_ = b.conn.Close()
		<-sb.Dead() // the reader goroutine has ended
		return nil, b.agentError(caller, err)
	}
	return sb, nil
}

// createError returns the error of a creation that took longer than createBound.
func createError(caller context.Context, err error) error {
	if caller.Err() != nil && sandbar.CodeOf(err) == sandbar.Unavailable {
		return sandbar.Errorf(sandbar.CodeOfContext(caller), "connecting to a pod: %w", err)
	}
	if caller.Err() == nil && sandbar.CodeOf(err) == sandbar.Timeout {
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: "a new pod is not ready after " + createBound.String(), Fix: "see kubectl get events; nodes may be overloaded, or pull a large image"}
	}
	return err
}

// agentError returns the error for an agent that does not answer correctly, with what its pod says.
func (b *resources) agentError(caller context.Context, err error) error {
	if caller.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(caller), "waiting for the agent: %w", caller.Err())
	}
	e := *sandbar.AsError(err)
	if e.Code == sandbar.Gone || errors.Is(err, context.DeadlineExceeded) {
		e.Code, e.Message, e.Fix = sandbar.Unavailable, "a new pod ended, or its agent does not answer", "try again; see kubectl get events"
	}
	if p, _ := b.d.pods.get(b.name); p != nil && podFailure(p) != nil {
		e.Message += "; the pod: " + endOf(p)
	}
	return &e
}

// awaitPorter waits until a pod's porter runs, and returns the pod's address.
func (d *Driver) awaitPorter(ctx context.Context, name string, uid types.UID) (ip string, err error) {
	seen := false
	err = d.pods.wait(ctx, name, func(p *corev1.Pod) (bool, error) {
		if p == nil || p.UID != uid {
			if seen {
				return false, &sandbar.Error{Code: sandbar.Unavailable, Message: "a new pod was deleted by somebody else", Fix: "try again"}
			}
			return false, nil
		}
		seen = true
		if err := podFailure(p); err != nil {
			return false, err
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == containerPorter && c.State.Running != nil && p.Status.PodIP != "" {
				ip = p.Status.PodIP
				return true, nil
			}
		}
		return false, nil
	})
	return ip, err
}

// dial connects to the porter of a pod, which listens a moment after its container runs.
func (d *Driver) dial(ctx context.Context, ip, name string, uid types.UID) (net.Conn, error) {
	if d.opt.reach == byAuto {
		bounded, cancel := context.WithTimeout(ctx, reachBound)
		defer cancel()
		ctx = bounded
	}
	connect := func(ctx context.Context) (net.Conn, error) {
		if d.opt.reach == byExec {
			return d.relay(ctx, name)
		}
		return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(porter.Port)))
	}
	pause := dialPause
	if d.opt.reach == byExec {
		pause = execPause
	}
	config := &tls.Config{RootCAs: d.gateway.keys.porters, ServerName: porter.ServerName, Certificates: []tls.Certificate{d.gateway.keys.daemon}, MinVersion: tls.VersionTLS13}
	for {
		conn, err := d.dialOnce(ctx, connect, config, uid)
		if err == nil || sandbar.CodeOf(err) == sandbar.Unsupported { // also errOtherKernel
			return conn, err
		}
		p, changed := d.pods.get(name)
		if p != nil && podFailure(p) != nil {
			return nil, podFailure(p)
		}
		select {
		case <-ctx.Done():
			if d.opt.reach == byExec {
				return nil, &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: "the daemon cannot connect to a pod through the API server", Fix: "check that kubectl exec works"}
			}
			return nil, unreachable(ip, err)
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// errOtherKernel is the refusal of a pod that runs on gVisor although the trial's did not, or the
// other way round: its limits are others than those that the driver has tried.
var errOtherKernel = &sandbar.Error{Code: sandbar.Unsupported, Message: "some nodes of the cluster run the pods on gVisor and others do not",
	Fix: "set the option " + optionRuntimeClass + " to a RuntimeClass that has the same handler on all nodes"}

// keepAlive ends the connection to a node that does not answer for 35 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}

// dialOnce connects to a porter and reads its greeting.
func (d *Driver) dialOnce(ctx context.Context, connect func(context.Context) (net.Conn, error), config *tls.Config, uid types.UID) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	raw, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line := make([]byte, 0, porter.MaxGreeting)
	for len(line) < cap(line) && (len(line) == 0 || line[len(line)-1] != '\n') {
		n, err := conn.Read(line[len(line) : len(line)+1]) // no byte of the agent's
		if err != nil {
			conn.Close()
			return nil, err
		}
		line = line[:len(line)+n]
	}
	said, greets := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), porter.Greeting)
	got, release, _ := strings.Cut(said, " ")
	if !greets || got != string(uid) {
		conn.Close()
		return nil, errors.New("another pod has this address")
	}
	if strings.Contains(release, "gvisor") != d.guest {
		conn.Close()
		return nil, errOtherKernel
	}
	return conn, nil
}

// explainBound bounds the wait for a pod's status after the connection has ended. Kubelets report
// the end of a container within two seconds.
const explainBound = 5 * time.Second

// explain returns why the sandbox has died, from what the cluster says about its pod.
func (b *resources) explain() client.Death {
	ctx, cancel := context.WithTimeout(b.left, explainBound)
	defer cancel()
	var last *corev1.Pod
	var d client.Death
	_ = b.d.pods.wait(ctx, b.name, func(p *corev1.Pod) (known bool, err error) {
		if p != nil && p.UID == b.uid {
			last = p
		}
		d, known = deathOf(p, b.uid)
		return known, nil
	})
	if b.left.Err() != nil {
		return client.Death{} // destroyed meanwhile
	}
	if d.Err == nil {
		d.Err = lostError(last)
	}
	b.log.Warn("a pod has ended by itself", "sandbox", b.id, "pod", b.name, "cause", d.Err)
	return d
}

// destroy ends the agent and deletes the pod. It returns when the kubelet has confirmed the end. A
// further attempt, after one that was too short for that, only waits.
func (b *resources) destroy(ctx context.Context) error {
	b.leave()
	b.usage.close()
	_ = b.conn.Close() // the agent ends, and with it all programs
	if !b.ended {
		if err := b.d.removePod(ctx, b.name, b.uid); err != nil {
			return err
		}
		b.ended = true
	}
	err := b.d.pods.wait(ctx, b.name, func(p *corev1.Pod) (bool, error) { return p == nil || p.UID != b.uid, nil })
	if err != nil {
		return err
	}
	b.release()
	return nil
}

// removePod deletes a pod with this UID, "" for any. A grace period of 0 would delete only the API
// object, while the node may still run the containers.
func (d *Driver) removePod(ctx context.Context, name string, uid types.UID) error {
	grace := int64(terminationSeconds)
	return d.api.remove(ctx, pods, name, uid, &grace)
}

// awaitRemoval deletes a pod and asks the API server until it does not exist, for pods that the
// watch may not know yet.
func (d *Driver) awaitRemoval(ctx context.Context, name string, uid types.UID) error {
	for {
		if err := d.removePod(ctx, name, uid); err != nil {
			return err
		}
		var p corev1.Pod
		err := d.api.get(ctx, pods, name, &p)
		if sandbar.CodeOf(err) == sandbar.NotFound || err == nil && uid != "" && p.UID != uid {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the end of a pod: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// release releases the sandbox's local resources.
func (b *resources) release() {
	b.d.pods.forget(b.name)
	b.d.registry.Release(string(b.id))
}

// undo removes a sandbox whose creation failed, even after the end of ctx. The sweeper removes what
// the API server does not remove now.
func (b *resources) undo(ctx context.Context) {
	b.leave()
	b.usage.close()
	if b.conn != nil {
		_ = b.conn.Close()
	}
	if b.asked {
		answered := make(chan struct{})
		close(answered)
		remove := func(ctx context.Context) error { return b.d.awaitRemoval(ctx, b.name, b.uid) }
		if err := b.d.sweeper.Undo(ctx, answered, remove); err != nil {
			b.log.Warn("a pod that failed could not be removed yet", "sandbox", b.id, "error", err)
		} else if b.uid == "" {
			b.d.sweeper.Expect(nil) // the server may still store the pod
		}
	}
	b.release()
}

// sweep removes pods of this daemon that belong to no known sandbox.
func (d *Driver) sweep(ctx context.Context) (found int, err error) {
	var list corev1.PodList
	if err := d.api.list(ctx, pods, d.gateway.selector()+","+labelSandbox, &list); err != nil {
		return 0, err
	}
	for _, p := range list.Items {
		if d.registry.Has(p.Labels[labelSandbox]) {
			continue
		}
		found++
		if err := d.removePod(ctx, p.Name, p.UID); err != nil {
			return found, err
		}
	}
	return found, nil
}
