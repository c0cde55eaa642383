package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

var _ driver.Inspector = (*Driver)(nil)

// enforceLabel is the label of a namespace with the pod security standard that its pods must
// fulfil.
const enforceLabel = "pod-security.kubernetes.io/enforce"

// Inspect returns what the cluster enforces, and the next step for what it does not. New has tried
// it with pods. With measure it also creates a sandbox and tells how long that takes.
func (d *Driver) Inspect(ctx context.Context, measure bool) []driver.Fact {
	facts := []driver.Fact{d.inspectServer(ctx), d.inspectNamespace(ctx), d.inspectRights(ctx), d.inspectNetwork(),
		d.inspectLimit("limit of memory", d.caps.Enforced.Memory), d.inspectLimit("limit of processors", d.caps.Enforced.CPUs),
		d.inspectLimit("limit of processes", d.caps.Enforced.PIDs), d.inspectLimit("limit of disk", d.caps.Enforced.Disk),
		{Name: "limits of inodes and shares of processors", State: "nothing in a cluster enforces them; a request for them is refused"},
		d.inspectRuntime(), {Name: "agent", State: d.opt.agentImage + ", " + d.agentWay()},
		{Name: "connections", State: "to pods " + d.reachedBy()}}
	if measure {
		facts = append(facts, d.measure(ctx))
	}
	return facts
}

// unknown is the fact for a question that the API server did not answer.
func unknown(name string, err error) driver.Fact {
	e := *sandbar.AsError(err)
	fix := e.Fix
	e.Fix = ""
	return driver.Fact{Name: name, State: "unknown: " + e.Error(), Fix: fix}
}

func (d *Driver) inspectServer(ctx context.Context) driver.Fact {
	const name = "cluster"
	var v version.Info
	err := d.api.call(ctx, "reading the version", func(ctx context.Context) error {
		raw, err := d.api.core.Get().AbsPath("/version").SetHeader("Accept", "application/json").Do(ctx).Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &v)
	})
	if err != nil {
		return unknown(name, err)
	}
	return driver.Fact{Name: name, State: "Kubernetes " + sandbar.Quote(v.GitVersion, 60) + " at " + d.api.host}
}

// inspectNamespace tells the pod security of the namespace. The driver does not need it, since its
// pods fulfil the strictest standard: it protects against others who create pods there.
func (d *Driver) inspectNamespace(ctx context.Context) driver.Fact {
	const name = "namespace"
	var n corev1.Namespace
	err := d.api.call(ctx, "reading the namespace", func(ctx context.Context) error {
		return d.api.core.Get().Resource("namespaces").Name(d.api.namespace).Do(ctx).Into(&n)
	})
	switch {
	case sandbar.CodeOf(err) == sandbar.Unsupported: // forbidden, and not one of Rights
		return driver.Fact{Name: name, State: d.api.namespace + "; the account may not read its pod security"}
	case err != nil:
		return unknown(name, err)
	}
	level := n.Labels[enforceLabel]
	if level == "restricted" {
		return driver.Fact{Name: name, State: d.api.namespace + ", pod security restricted"}
	}
	if level == "" {
		level = "not enforced"
	}
	return driver.Fact{Name: name, State: d.api.namespace + ", pod security " + sandbar.Quote(level, 70),
		Fix: "kubectl label namespace " + d.api.namespace + " " + enforceLabel + "=restricted (the driver's pods fulfil it)"}
}

func (d *Driver) inspectRights(ctx context.Context) driver.Fact {
	const name = "rights"
	lacks, err := d.api.missing(ctx, d.rights())
	if err != nil {
		return unknown(name, err)
	}
	if len(lacks) == 0 {
		return driver.Fact{Name: name, State: "the account has all that the driver uses"}
	}
	return driver.Fact{Name: name, State: "the account may not " + rightsText(lacks), Fix: rightsFix(d.api.namespace, lacks)}
}

func (d *Driver) inspectNetwork() driver.Fact {
	const name = "network"
	if d.caps.PrivateNetwork {
		return driver.Fact{Name: name, State: "NetworkPolicy objects hold: a canary pod reached neither a pod, nor the API server, nor its node's kubelet"}
	}
	return driver.Fact{Name: name, State: "NetworkPolicy objects do not hold: a canary pod reached another pod, the API server or its node's kubelet; sandboxes are refused unless degraded limits are allowed",
		Fix: "install a network plugin that enforces NetworkPolicy, such as Calico or Cilium, or enable it in the cluster's plugin"}
}

// inspectLimit tells how a limit is enforced that New has tried out.
func (d *Driver) inspectLimit(name string, by sandbar.Enforcement) driver.Fact {
	if by != sandbar.EnforcedNone {
		return driver.Fact{Name: name, State: "enforced by " + string(by) + ", as a pod has shown"}
	}
	return driver.Fact{Name: name, State: "it did not hold in a pod that the driver made to try it; requests with this limit are refused unless degraded limits are allowed",
		Fix: "use another runtime class, or see \"What enforces each limit\" in docs/kubernetes.md"}
}

func (d *Driver) inspectRuntime() driver.Fact {
	const name = "runtime class"
	if d.opt.runtimeClass == "" {
		return driver.Fact{Name: name, State: "the cluster's default; programs share the nodes' kernel, behind the agent's system-call filter"}
	}
	if d.guest {
		return driver.Fact{Name: name, State: sandbar.Quote(d.opt.runtimeClass, 70) + ": gVisor's kernel is between programs and the nodes' kernel"}
	}
	return driver.Fact{Name: name, State: d.opt.runtimeClass}
}

// agentWay tells how the agent gets into a pod.
func (d *Driver) agentWay() string {
	if d.opt.agentBy == byCopy {
		return "copied by an init container"
	}
	return "as a volume"
}

// measure creates a sandbox as a user's request does.
func (d *Driver) measure(ctx context.Context) driver.Fact {
	const name = "a sandbox"
	began := time.Now()
	sb, err := d.Create(ctx, sandbar.NewID(), sandbar.Spec{Image: sandbar.ImageHost, AllowDegraded: true})
	if err != nil {
		return unknown(name, err)
	}
	created := time.Since(began)
	if err := sb.Destroy(ctx); err != nil {
		return unknown(name, err)
	}
	return driver.Fact{Name: name, State: fmt.Sprintf("created in %d ms, removed in %d ms", created.Milliseconds(), (time.Since(began) - created).Milliseconds())}
}
