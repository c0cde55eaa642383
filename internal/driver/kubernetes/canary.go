package kubernetes

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
)

// tryOut makes a sandbox and a canary, and completes what the driver enforces.
func (d *Driver) tryOut(ctx context.Context) error {
	type result struct {
		denied bool
		err    error
	}
	canary := make(chan result, 1)
	reach := d.opt.reach // trySandbox may change it
	go func() {
		denied, err := d.canary(ctx, reach)
		canary <- result{denied, err}
	}()
	err := d.trySandbox(ctx)
	r := <-canary
	if err != nil {
		return err
	}
	if r.err != nil {
		return r.err
	}
	if !r.denied {
		d.caps.PrivateNetwork = false
		d.caps.Notes = append(d.caps.Notes, "the cluster's network does not obey NetworkPolicy objects: programs reach other pods or the API server; install a network plugin that enforces policies")
	}
	return nil
}

// kubeletPort is the port of a node's kubelet.
const kubeletPort = 10250

// canary reports whether the NetworkPolicy holds: whether a pod cannot reach another pod, which
// listens, the API server, and the kubelet of its node.
func (d *Driver) canary(ctx context.Context, reach string) (denied bool, err error) {
	name := podName("canary-" + d.gateway.name[len("sandbar-"):])
	target, probe := name+"-target", name+"-probe"
	defer func() {
		for _, n := range []string{target, probe} {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
			if rerr := d.awaitRemoval(bounded, n, ""); err == nil {
				err = rerr
			}
			cancel()
			d.pods.forget(n)
		}
	}()
	p := d.bare(target, porterUID)
	d.servingPorter(p)
	var made corev1.Pod
	if err := d.api.create(ctx, pods, p, &made); err != nil {
		return false, err
	}
	ip, err := d.awaitPorter(ctx, target, made.UID)
	if err != nil {
		return false, err
	}
	address := net.JoinHostPort(ip, strconv.Itoa(porter.Port))
	if err := d.listens(ctx, target, address, reach); err != nil {
		return false, err
	}
	addresses := []string{address}
	if running, _ := d.pods.get(target); running != nil && running.Status.HostIP != "" {
		addresses = append(addresses, net.JoinHostPort(running.Status.HostIP, strconv.Itoa(kubeletPort)))
	}
	addresses = append(addresses, d.serverAddresses(ctx)...)
	p = d.bare(probe, porterUID)
	p.Spec.Containers = []corev1.Container{d.porter(append([]string{porter.ModeProbe}, addresses...)...)}
	if err := d.api.create(ctx, pods, p, &made); err != nil {
		return false, err
	}
	return d.verdict(ctx, probe, made)
}

// listens waits until the target listens: until the daemon can connect to it, or, where that cannot
// be, a program in its container.
func (d *Driver) listens(ctx context.Context, target, address, reach string) error {
	switch reach {
	case byAddress:
		return d.reaches(ctx, address)
	case byAuto:
		bounded, cancel := context.WithTimeout(ctx, reachBound)
		defer cancel()
		if d.reaches(bounded, address) == nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, canaryBound)
	defer cancel()
	for {
		conn, err := d.exec(ctx, target, porter.ModeProbe, net.JoinHostPort("127.0.0.1", strconv.Itoa(porter.Port)))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err != nil && strings.HasPrefix(err.Error(), porter.Reached) {
			return nil
		}
		if sandbar.CodeOf(err) == sandbar.Unsupported { // forbidden
			return err
		}
		select {
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.Unavailable, "the canary's target does not listen: %w", cmp.Or(err, ctx.Err()))
		case <-time.After(execPause):
		}
	}
}

// canaryBound bounds the wait for the canary's target. Its porter ends after a minute, since there
// is no agent.
const canaryBound = 50 * time.Second

// reaches waits until the daemon itself can connect to an address.
func (d *Driver) reaches(ctx context.Context, address string) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, dialBound)
		conn, err := (&net.Dialer{}).DialContext(bounded, "tcp", address)
		cancel()
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return unreachable(address, err)
		case <-time.After(dialPause):
		}
	}
}

// serverAddresses returns the addresses of the API server.
func (d *Driver) serverAddresses(ctx context.Context) (list []string) {
	u, err := url.Parse(d.api.host)
	if err != nil {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	ips, _ := net.DefaultResolver.LookupHost(ctx, u.Hostname()) // the other addresses suffice
	for _, ip := range ips {
		list = append(list, net.JoinHostPort(ip, port))
	}
	return list
}

// verdict waits for the end of the probe.
func (d *Driver) verdict(ctx context.Context, name string, made corev1.Pod) (denied bool, err error) {
	err = d.pods.wait(ctx, name, func(p *corev1.Pod) (bool, error) {
		if p == nil || p.UID != made.UID {
			return false, nil
		}
		for _, c := range p.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				denied = t.ExitCode == 0
				if !denied && t.ExitCode != porter.ExitReached {
					return false, &sandbar.Error{Code: sandbar.Unavailable, Message: "the canary failed: " + endOf(p)}
				}
				return true, nil
			}
		}
		return false, podFailure(p)
	})
	return denied, err
}
